//! A peer that the case plays packet by packet against one real queue pair.

use std::time::Duration;

use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Headers, ImmDt, Msn, Opcode, Psn, Qpn, RKey, Reth, Syndrome,
    Transport,
};
use verbs_api::RemoteAddr;

use crate::outcome::{CaseResult, Failure};
use crate::pair::{Endpoint, Node, Setup};
use crate::scene::Scene;
use crate::testbed::{Passing, Side, Testbed};

/// The played queue pair's number. Most devices give out no numbers so low; on a real wire packets to it reach no device.
pub(crate) const PLAYED_QPN: u32 = 0xF42;

/// A real queue pair at the left end, connected to a peer at the right end that the case plays.
pub struct RawPeer<B: Testbed> {
    /// The queue pair under test, in RTS.
    pub node: Node<B::P>,
    /// How it was set up.
    pub setup: Setup,
    /// Packets from the queue pair that the case has not looked at.
    unread: std::collections::VecDeque<Passing>,
}

impl<B: Testbed> Scene<B> {
    /// A queue pair in RTS whose peer the case plays.
    pub fn raw_peer(&mut self, setup: &Setup) -> Result<RawPeer<B>, Failure> {
        let node = self.node(Side::Left, setup)?;
        self.raw_peer_of(node, setup)
    }

    /// The queue pair `node` of the left end, still in RESET, brought to RTS with a peer that the case plays.
    pub fn raw_peer_of(&mut self, node: Node<B::P>, setup: &Setup) -> Result<RawPeer<B>, Failure> {
        let mut setup = setup.clone();
        if setup.timeout == Setup::default().timeout {
            // The case does not count on it. What is played answers when it gets the processor.
            setup.timeout = self.virtually(setup.timeout, 19);
        }
        let setup = &setup;
        let played = Endpoint {
            side: Side::Right,
            qpn: PLAYED_QPN,
            gid: self.gid(Side::Right)?,
        };
        node.connect(setup, &played)?;
        self.network().take_trace();
        Ok(RawPeer {
            node,
            setup: setup.clone(),
            unread: Default::default(),
        })
    }
}

impl<B: Testbed> RawPeer<B> {
    /// The PSN of the `n`th packet that the queue pair sends, from 0.
    pub fn own_psn(&self, n: u32) -> Psn {
        Psn::new(self.setup.psn[0].wrapping_add(n))
    }

    /// The PSN of the `n`th packet that the played peer sends, from 0.
    pub fn peer_psn(&self, n: u32) -> Psn {
        Psn::new(self.setup.psn[1].wrapping_add(n))
    }

    /// A header to the queue pair.
    pub fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        let qpn = Qpn::new(self.node.endpoint.qpn).expect("a device's queue pair numbers have 24 bits");
        Bth {
            ack_request: opcode
                .info()
                .is_some_and(|info| info.is_request() && info.transport == Transport::Rc),
            ..Bth::new(opcode, qpn, psn)
        }
    }

    /// Send a packet with extension headers chosen by `fill`.
    pub fn send(
        &self,
        scene: &mut Scene<B>,
        opcode: Opcode,
        psn: Psn,
        payload: &[u8],
        fill: impl FnOnce(&mut Headers),
    ) {
        let mut headers = Headers::new(self.bth(opcode, psn));
        fill(&mut headers);
        scene.network().inject(Side::Left, &headers, payload);
    }

    /// Send an acknowledgement, positive or negative.
    pub fn acknowledge(&self, scene: &mut Scene<B>, psn: Psn, syndrome: Syndrome, msn: u32) {
        self.send(scene, Opcode::RC_ACKNOWLEDGE, psn, &[], |headers| {
            headers.aeth = Some(Aeth {
                syndrome,
                msn: Msn::new(msn),
            });
        });
    }

    /// Send a SEND of one packet.
    pub fn send_only(&self, scene: &mut Scene<B>, psn: Psn, payload: &[u8]) {
        self.send(scene, Opcode::RC_SEND_ONLY, psn, payload, |_| {});
    }

    /// Send a WRITE of one packet.
    pub fn write_only(&self, scene: &mut Scene<B>, psn: Psn, remote: RemoteAddr, payload: &[u8]) {
        self.send(scene, Opcode::RC_WRITE_ONLY, psn, payload, |headers| {
            headers.reth = Some(reth(remote, payload.len() as u32));
        });
    }

    /// Send a READ request.
    pub fn read_request(&self, scene: &mut Scene<B>, psn: Psn, remote: RemoteAddr, length: u32) {
        self.send(scene, Opcode::RC_READ_REQUEST, psn, &[], |headers| {
            headers.reth = Some(reth(remote, length))
        });
    }

    /// Send a fetch and add.
    pub fn fetch_add(&self, scene: &mut Scene<B>, psn: Psn, remote: RemoteAddr, add: u64) {
        self.send(scene, Opcode::RC_FETCH_ADD, psn, &[], |headers| {
            let rkey = RKey(remote.rkey.0);
            headers.atomic_eth = Some(AtomicEth {
                va: remote.addr,
                rkey,
                swap_or_add: add,
                compare: 0,
            });
        });
    }

    /// Send a READ response of one packet.
    pub fn read_response(&self, scene: &mut Scene<B>, opcode: Opcode, psn: Psn, msn: u32, payload: &[u8]) {
        self.send(scene, opcode, psn, payload, |headers| {
            headers.aeth = Some(Aeth {
                syndrome: Syndrome::ACK,
                msn: Msn::new(msn),
            });
        });
    }

    /// Send the answer to an atomic.
    pub fn atomic_response(&self, scene: &mut Scene<B>, psn: Psn, msn: u32, original: u64) {
        self.send(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn, &[], |headers| {
            headers.aeth = Some(Aeth {
                syndrome: Syndrome::ACK,
                msn: Msn::new(msn),
            });
            headers.atomic_ack = Some(AtomicAckEth { original });
        });
    }

    fn look(&mut self, scene: &mut Scene<B>) {
        let new = scene.network().take_trace().into_iter();
        self.unread
            .extend(new.filter(|p| p.from == Side::Left && p.headers.bth.dest_qp.value() == PLAYED_QPN));
    }

    /// The next packet of the queue pair.
    pub fn next(&mut self, scene: &mut Scene<B>) -> Result<Passing, Failure> {
        scene.until("a packet of the queue pair under test", |scene| {
            self.look(scene);
            Ok(self.unread.pop_front())
        })
    }

    /// The next packet, which must be this.
    pub fn expect(&mut self, scene: &mut Scene<B>, opcode: Opcode, psn: Psn) -> Result<Passing, Failure> {
        let packet = self.next(scene)?;
        let seen = (packet.headers.bth.opcode, packet.headers.bth.psn);
        crate::same!(
            seen,
            (opcode, psn),
            "opcode and PSN of the next packet ({:?})",
            packet.headers.aeth
        );
        Ok(packet)
    }

    /// The next packet, which must be an acknowledgement with this PSN and syndrome; its MSN.
    pub fn expect_aeth(
        &mut self,
        scene: &mut Scene<B>,
        psn: Psn,
        syndrome: Syndrome,
    ) -> Result<u32, Failure> {
        let packet = self.next(scene)?;
        let Some(aeth) = packet
            .headers
            .aeth
            .filter(|_| packet.headers.bth.opcode == Opcode::RC_ACKNOWLEDGE)
        else {
            return Err(Failure::new(format!(
                "expected {syndrome:?}, seen a packet {:?}",
                packet.headers.bth
            )));
        };
        // An ACK may advertise any number of credits.
        let same = match (aeth.syndrome, syndrome) {
            (Syndrome::Ack(_), Syndrome::Ack(_)) => true,
            (seen, expected) => seen == expected,
        };
        crate::check!(
            same && packet.headers.bth.psn == psn,
            "expected {syndrome:?} with {psn:?}, seen {:?} with {:?}",
            aeth.syndrome,
            packet.headers.bth.psn
        );
        Ok(aeth.msn.value())
    }

    /// All packets so far that were not looked at.
    pub fn drain(&mut self, scene: &mut Scene<B>) -> Vec<Passing> {
        self.look(scene);
        self.unread.drain(..).collect()
    }

    /// The queue pair sends nothing while `time` passes.
    pub fn silence(&mut self, scene: &mut Scene<B>, time: Duration) -> CaseResult {
        scene.rest(time);
        self.nothing_unread(scene)
    }

    fn nothing_unread(&mut self, scene: &mut Scene<B>) -> CaseResult {
        self.look(scene);
        match self.unread.pop_front() {
            None => Ok(()),
            Some(packet) => Err(Failure::new(format!(
                "a packet that must not be: {:?} {:?} {:?}",
                packet.headers.bth.opcode, packet.headers.bth.psn, packet.headers.aeth
            ))),
        }
    }

    /// The queue pair sends nothing while `time` passes. In real time it may send again what is not acknowledged: no rule
    /// says how long it waits when its peer is heard of, yet not about that.
    pub fn nothing_new(&mut self, scene: &mut Scene<B>, time: Duration) -> CaseResult {
        if !scene.is_real_time() {
            return self.silence(scene, time);
        }
        scene.rest(time);
        self.look(scene);
        self.unread.retain(|packet| packet.transmission == 1);
        self.nothing_unread(scene)
    }

    /// The queue pair still serves: a WRITE of no byte with this PSN is acknowledged.
    pub fn still_serves(&mut self, scene: &mut Scene<B>, psn: Psn) -> CaseResult {
        self.write_only(scene, psn, RemoteAddr::default(), &[]);
        self.expect_aeth(scene, psn, Syndrome::ACK)
            .map(|_| ())
            .map_err(|e| e.during("a last WRITE of no byte, to see that the queue pair still serves"))
    }
}

/// An RDMA header.
pub fn reth(remote: RemoteAddr, length: u32) -> Reth {
    Reth {
        va: remote.addr,
        rkey: RKey(remote.rkey.0),
        dma_length: length,
    }
}

/// Immediate data from a number.
pub fn immediate(value: u32) -> ImmDt {
    ImmDt(value.to_be_bytes())
}
