//! A connected queue pair with its rings: what carries a stream. Nothing here waits.

use std::fmt;

use verbs_api::{
    Access, Buffer, CompletionChannel, CompletionQueue, Context, CqInit, MemoryRegion, Notify,
    ProtectionDomain, Provider, QpCap, QpInit, QpType, QueuePair, RecvWr, RemoteAddr, Result, SendOp, Sge,
    SqSigType, Wc, WcOpcode, WcStatus,
};

use crate::conversation::Conversation;
use crate::errors::Errno;
use crate::mapping::{ENTRY_BYTES, Table};
use crate::message::{CONTROL_BYTES, Control, Hello, Violation};
use crate::options::Options;
use crate::outgoing::{Class, Outgoing};

mod sending;

use sending::Via;

/// Receives beyond those for data: for three credits ([`ReceiveWindow::owes_credit`]) and the end of data.
const CONTROL_RECEIVES: u16 = 4;
/// A message of data has at most so many bytes, so that the peer can begin to read a long one.
const MESSAGE_BYTES_MAX: usize = 1 << 16;
/// What we send inline in any case.
const INLINE_MIN: usize = 32;
/// The number of all sends; receives are numbered by their slots.
const SEND_ID: u64 = 1 << 32;
/// Completions taken at a time, and how often in a row at most.
const BATCH: usize = 32;
const BATCHES_MAX: usize = 64;

const _: () = assert!(INLINE_MIN >= CONTROL_BYTES && INLINE_MIN >= ENTRY_BYTES);

/// Whether anything still goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Alive,
    /// Somebody has ended the connection.
    Flushed,
    /// It broke, for this reason.
    Broken(Errno),
}

/// See the module's documentation.
pub(crate) struct Link<P: Provider> {
    // Regions and queues first, their parents last.
    qp: P::Qp,
    send_region: P::Mr,
    receive_region: P::Mr,
    control_region: P::Mr,
    table_region: Option<P::Mr>,
    cq: P::Cq,
    channel: P::Channel,
    domain: P::Pd,
    is_armed: bool,
    send_ring: Buffer,
    receive_ring: Buffer,
    control: Buffer,
    table: Table,
    outgoing: Outgoing,
    conversation: Conversation,
    messages: u16,
    inline_bytes: usize,
    fate: Fate,
}

impl<P: Provider> fmt::Debug for Link<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("qp", &self.qp)
            .field("fate", &self.fate)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> Link<P> {
    /// A queue pair that is not connected yet.
    pub(crate) fn new(context: &P::Context, options: &Options) -> Result<Self> {
        let domain = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let receives = options.receive_queue + CONTROL_RECEIVES;
        let cqe = u32::from(options.send_queue) + u32::from(receives);
        let cq = context.create_cq(&CqInit {
            channel: Some(&channel),
            ..CqInit::new(cqe)
        })?;
        let cap = QpCap {
            max_send_wr: options.send_queue.into(),
            max_recv_wr: receives.into(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: options.inline_bytes.max(INLINE_MIN as u32),
        };
        let qp = domain.create_qp(&QpInit {
            qp_type: QpType::Rc,
            send_cq: Some(&cq),
            recv_cq: Some(&cq),
            srq: None,
            xrc_domain: None,
            cap,
            sq_sig: SqSigType::OnRequest,
        })?;
        let send_ring = Buffer::new(options.send_bytes as usize);
        let receive_ring = Buffer::new(options.receive_bytes as usize);
        let control = Buffer::new(usize::from(receives) * CONTROL_BYTES);
        let table = Table::new(options.mappings);
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let table_region = match options.mappings {
            0 => None,
            _ => Some(domain.reg_mr(table.memory(), written)?),
        };
        Ok(Link {
            qp,
            send_region: domain.reg_mr(&send_ring, Access::empty())?,
            receive_region: domain.reg_mr(&receive_ring, written)?,
            control_region: domain.reg_mr(&control, Access::LOCAL_WRITE)?,
            table_region,
            cq,
            channel,
            domain,
            is_armed: false,
            outgoing: Outgoing::new(send_ring.len(), options.send_queue.into()),
            send_ring,
            receive_ring,
            control,
            table,
            conversation: Conversation::new(options.receive_bytes, options.receive_queue),
            messages: options.receive_queue,
            inline_bytes: options.inline_bytes as usize,
            fate: Fate::Alive,
        })
    }

    pub(crate) fn qp(&self) -> &P::Qp {
        &self.qp
    }

    pub(crate) fn domain(&self) -> &P::Pd {
        &self.domain
    }

    pub(crate) fn channel(&self) -> &P::Channel {
        &self.channel
    }

    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    pub(crate) fn peer_has_ended(&self) -> bool {
        self.conversation.peer_has_ended()
    }

    /// Entries of the peer's table.
    pub(crate) fn peer_mappings(&self) -> u16 {
        self.conversation.peer_mappings()
    }

    /// Whether all that was sent has arrived.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// What the peer must know.
    pub(crate) fn hello(&self) -> Hello {
        let place = |region: &P::Mr| RemoteAddr {
            addr: region.addr(),
            rkey: region.rkey(),
        };
        Hello {
            messages: self.messages,
            ring: place(&self.receive_region),
            ring_bytes: self.receive_ring.len() as u32,
            table: self.table_region.as_ref().map(place).unwrap_or_default(),
            table_entries: (self.table.memory().len() / ENTRY_BYTES) as u16,
        }
    }

    /// What the peer has said.
    pub(crate) fn meet(&mut self, hello: &Hello) {
        self.conversation.meet(hello);
    }

    /// Post all receives: once, when the queue pair is in INIT.
    pub(crate) fn post_receives(&self) -> Result<()> {
        (0..self.messages + CONTROL_RECEIVES).try_for_each(|slot| self.post_receive(slot.into()))
    }

    fn post_receive(&self, slot: u64) -> Result<()> {
        let sges = [Sge {
            addr: self.control_region.addr() + slot * CONTROL_BYTES as u64,
            length: CONTROL_BYTES as u32,
            lkey: self.control_region.lkey(),
        }];
        let request = RecvWr {
            wr_id: slot,
            sges: &sges,
        };
        self.qp.post_recv(&[request]).map_err(|refused| refused.error)
    }

    /// Take in what has completed. True when there was something, be it only an event: the queue must be armed again.
    pub(crate) fn poll(&mut self) -> Result<bool> {
        let mut found = false;
        if self.is_armed {
            while self.channel.wait(Some(std::time::Duration::ZERO))?.is_some() {
                self.is_armed = false;
                found = true;
            }
        }
        let mut batch = [Wc::default(); BATCH];
        for _ in 0..BATCHES_MAX {
            let count = self.cq.poll(&mut batch)?;
            for wc in &batch[..count] {
                self.take(wc);
            }
            found |= count > 0;
            if count < BATCH {
                break;
            }
        }
        self.give_credit();
        Ok(found)
    }

    /// The channel becomes readable at the next completion. What came before must be polled for after this.
    pub(crate) fn arm(&mut self) -> Result<()> {
        if !self.is_armed {
            self.cq.req_notify(Notify::Any)?;
            self.is_armed = true;
        }
        Ok(())
    }

    fn take(&mut self, wc: &Wc) {
        let is_send = wc.wr_id == SEND_ID;
        if is_send {
            self.outgoing.complete();
        }
        match wc.status {
            WcStatus::Success if is_send => {}
            WcStatus::Success => {
                if let Err(violation) = self.receive(wc) {
                    tracing::warn!(?violation, "a peer does not keep to the protocol");
                    self.break_off(Errno::EPROTO);
                } else if self.fate == Fate::Alive && self.post_receive(wc.wr_id).is_err() {
                    self.break_off(Errno::ECONNABORTED);
                }
            }
            WcStatus::WrFlushErr => {
                if self.fate == Fate::Alive {
                    self.fate = Fate::Flushed;
                }
            }
            // Something of a length that the protocol does not have.
            WcStatus::LocLenErr => self.break_off(Errno::EPROTO),
            status => {
                tracing::info!(%status, "a connection has failed");
                self.break_off(Errno::ECONNRESET);
            }
        }
    }

    fn break_off(&mut self, errno: Errno) {
        if !matches!(self.fate, Fate::Broken(_)) {
            self.fate = Fate::Broken(errno);
        }
    }

    fn receive(&mut self, wc: &Wc) -> Result<(), Violation> {
        if wc.opcode == WcOpcode::RecvRdmaWithImm {
            return self.conversation.data(wc.byte_len, wc.immediate());
        }
        let mut bytes = [0; CONTROL_BYTES];
        self.control.read(wc.wr_id as usize * CONTROL_BYTES, &mut bytes);
        let length = (wc.byte_len as usize).min(CONTROL_BYTES);
        self.conversation.control(&bytes[..length])
    }

    /// Tell the peer what there is room for, when it should know.
    fn give_credit(&mut self) {
        if let Some(credit) = self.conversation.credit_owed()
            && self.can_post(Class::Control)
        {
            let message = Control::Credit(credit).to_bytes();
            if self
                .post(SendOp::Send { imm: None }, Via::Inline(&message))
                .is_ok()
            {
                self.conversation.told();
            }
        }
    }

    /// Bytes that wait to be read.
    pub(crate) fn readable(&self) -> usize {
        self.conversation.readable()
    }

    /// Copy out what waits, from `skip` on, and leave it there; how much that was.
    pub(crate) fn peek(&self, skip: usize, out: &mut [u8]) -> usize {
        let count = out.len().min(self.readable().saturating_sub(skip));
        let mut position = 0;
        let mut skip = skip;
        for mut place in self.conversation.places(skip + count) {
            let skipped = skip.min(place.len());
            skip -= skipped;
            place.start += skipped;
            self.receive_ring
                .read(place.start, &mut out[position..position + place.len()]);
            position += place.len();
        }
        count
    }

    /// So many bytes were read.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.conversation.take(bytes);
        self.give_credit();
    }

    fn can_post(&self, class: Class) -> bool {
        self.fate == Fate::Alive && self.outgoing.has_slot(class)
    }
}
