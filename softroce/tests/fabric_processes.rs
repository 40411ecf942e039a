//! Many processes on one address: none disturbs another by being killed, stopped, continued or forked.
//!
//! The processes are this test program again, see [`a_member_process`].

#[path = "support/fabric.rs"]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use softroce::{Fabric, UdpFabric};
use softroce_engine::{RxMeta, TxBatch};

use support::*;

/// Tells the program to be a member process on this address.
const ADDRESS_VARIABLE: &str = "SOFTROCE_TEST_MEMBER";
/// Longest silence that a living member may show while others come and go. Without other load it is a few
/// milliseconds; the rest is for machines with more processes than processors.
const SILENCE_MAX: Duration = Duration::from_millis(200);

/// Not a test: what the child processes run. It sends each packet back to the queue pair that its payload names, and
/// obeys lines on its standard input.
#[test]
fn a_member_process() {
    let Ok(address) = std::env::var(ADDRESS_VARIABLE) else {
        return;
    };
    let mut fabric = open(address.parse().unwrap());
    // The harness has begun the line already.
    println!("\nslice {}", fabric.qpn_slice().start);
    let mut batch = TxBatch::new(1 << 17, 256);
    let mut fds: Vec<RawFd> = fabric.fds();
    fds.push(0);
    loop {
        let mut polled: Vec<libc::pollfd> = fds
            .iter()
            .map(|fd| libc::pollfd {
                fd: *fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        // SAFETY: pointer and length describe `polled`.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, 1000) };
        let own = fabric.address();
        batch.clear();
        fabric.recv(&mut |meta, packet| answer(&mut batch, own, meta, packet));
        fabric.send(&mut batch);
        if polled[fds.len() - 1].revents != 0 && !obey(&mut fabric) {
            return;
        }
    }
}

fn answer(batch: &mut TxBatch, own: IpAddr, meta: &RxMeta, packet: &[u8]) {
    let back_to = u32::from_be_bytes(*packet[12..].first_chunk().unwrap());
    if let Some(bytes) = batch.push(path(own, meta.src), packet.len()) {
        fill_packet(bytes, back_to, tag_of(packet));
    }
}

/// Obey one order of the parent; `false` when it is gone.
fn obey(fabric: &mut UdpFabric) -> bool {
    let mut order = [0u8; 1];
    // SAFETY: pointer and length describe `order`.
    if unsafe { libc::read(0, order.as_mut_ptr().cast(), 1) } != 1 {
        return false;
    }
    if order[0] == b'f' {
        // SAFETY: the child only closes descriptors, sleeps and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            fabric.close_in_child();
            std::thread::sleep(Duration::from_secs(3));
            // SAFETY: leaves at once.
            unsafe { libc::_exit(0) };
        }
        println!("forked {pid}");
    }
    true
}

struct Process {
    child: Child,
    orders: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    qpn: u32,
    last_heard: Instant,
    longest_silence: Duration,
}

impl Process {
    fn start(address: IpAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_member_process", "--nocapture"])
            .env(ADDRESS_VARIABLE, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let now = Instant::now();
        Process {
            child,
            orders,
            output,
            qpn: 0,
            last_heard: now,
            longest_silence: Duration::ZERO,
        }
    }

    /// Wait for a line that begins so, and give the rest.
    fn line(&mut self, begin: &str) -> String {
        for line in self.output.by_ref().lines() {
            if let Some(rest) = line.unwrap().strip_prefix(begin) {
                return rest.to_owned();
            }
        }
        panic!("the member process ended before it said {begin:?}");
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is our child and not waited for yet, so its number is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    fn hear(&mut self) {
        let now = Instant::now();
        self.longest_silence = self.longest_silence.max(now - self.last_heard);
        self.last_heard = now;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The test's own fabric on the address, and processes to talk to.
struct Party {
    own: UdpFabric,
    processes: Vec<Process>,
    answers: usize,
}

impl Party {
    fn of(count: usize) -> Self {
        let address = fresh_address();
        let own = open(address);
        let mut party = Party {
            own,
            processes: Vec::new(),
            answers: 0,
        };
        for _ in 0..count {
            party.add();
        }
        party.talk_for(Duration::from_millis(100));
        party
    }

    /// One more process. (The own fabric may be silent meanwhile, so the newcomer also sees how a busy member delays
    /// it: not for long.)
    fn add(&mut self) {
        let mut process = Process::start(self.own.address());
        process.qpn = process.line("slice ").trim().parse::<u32>().unwrap() + 5;
        process.last_heard = Instant::now();
        self.processes.push(process);
        for process in &mut self.processes {
            process.last_heard = Instant::now();
        }
    }

    /// Send a packet to every process each millisecond and take the answers.
    fn talk_for(&mut self, time: Duration) {
        self.talk_with(time, |_| true);
    }

    /// Same, with those processes (by number) only.
    fn talk_with(&mut self, time: Duration, with: impl Fn(usize) -> bool) {
        let end = Instant::now() + time;
        let mut next = Instant::now();
        let mut batch = TxBatch::new(1 << 16, 64);
        while Instant::now() < end {
            if Instant::now() >= next {
                next = Instant::now() + Duration::from_millis(1);
                batch.clear();
                let way = path(self.own.address(), self.own.address());
                for (number, process) in (0u32..).zip(&self.processes) {
                    if with(number as usize) {
                        let packet = batch.push(way, 24).unwrap();
                        fill_packet(packet, process.qpn, number);
                        packet[12..16].copy_from_slice(&(self.own.qpn_slice().start + number).to_be_bytes());
                    }
                }
                self.own.send(&mut batch);
            }
            let (own, processes, answers) = (&mut self.own, &mut self.processes, &mut self.answers);
            own.recv(&mut |_, packet| {
                *answers += 1;
                // An answer may be late, and the number be gone by now.
                if let Some(process) = processes.get_mut(tag_of(packet) as usize) {
                    process.hear();
                }
            });
            std::thread::yield_now();
        }
    }

    fn reset(&mut self) {
        self.answers = 0;
        for process in &mut self.processes {
            process.last_heard = Instant::now();
            process.longest_silence = Duration::ZERO;
        }
    }

    /// Longest silence of those processes.
    fn longest_silence(&self, of: impl Fn(usize) -> bool) -> Duration {
        let silences = self
            .processes
            .iter()
            .enumerate()
            .filter(|(number, _)| of(*number));
        silences
            .map(|(_, process)| process.longest_silence.max(process.last_heard.elapsed()))
            .max()
            .unwrap()
    }
}

fn check_silence(party: &Party, what: &str, of: impl Fn(usize) -> bool) {
    let silence = party.longest_silence(of);
    println!(
        "{what}: longest silence of the others {silence:?}, own counters {:?}",
        party.own.counters()
    );
    assert!(
        silence < SILENCE_MAX,
        "{what}: a member was silent for {silence:?}"
    );
}

#[test]
fn a_killed_member_does_not_disturb_the_others() {
    let mut party = Party::of(7);
    for victim in [0, 3, 4] {
        party.reset();
        party.talk_for(Duration::from_millis(20));
        party.processes[victim].signal(libc::SIGKILL);
        party.talk_with(Duration::from_millis(200), |number| number != victim);
        check_silence(&party, "after SIGKILL", |number| number != victim);
        party.processes.remove(victim);
    }
    assert!(party.answers > 0);
}

#[test]
fn a_stopped_member_swallows_nobody_elses_packets_whoever_dies_meanwhile() {
    // Whether the stopped one could swallow depends on who sits where: try several.
    for stopped in [0, 2, 4] {
        let mut party = Party::of(5);
        party.reset();
        party.processes[stopped].signal(libc::SIGSTOP);
        party.talk_with(Duration::from_millis(50), |number| number != stopped);
        check_silence(&party, "after SIGSTOP", |number| number != stopped);
        let victim = if stopped == 2 { 0 } else { 2 };
        party.processes[victim].signal(libc::SIGKILL);
        let alive = |number: usize| number != stopped && number != victim;
        party.talk_with(Duration::from_millis(200), alive);
        check_silence(&party, "after SIGKILL beside a stopped member", alive);
        party.add();
        party.reset();
        party.talk_with(Duration::from_millis(200), alive);
        check_silence(&party, "after a join beside a stopped member", alive);
        party.processes[stopped].signal(libc::SIGCONT);
        party.reset();
        party.talk_with(Duration::from_millis(200), |number| number != victim);
        check_silence(&party, "after SIGCONT", |number| number != victim);
    }
}

#[test]
fn a_killed_member_whose_forked_child_lives_on_does_not_disturb_the_others() {
    let mut party = Party::of(4);
    let victim = 1;
    party.processes[victim].orders.write_all(b"f").unwrap();
    party.processes[victim].line("forked ");
    party.reset();
    party.processes[victim].signal(libc::SIGKILL);
    party.talk_with(Duration::from_millis(300), |number| number != victim);
    check_silence(&party, "after SIGKILL of a parent", |number| number != victim);
    // Nobody holds the part of the dead one any more: its packets are dropped, and counted.
    let dropped = |party: &Party| party.own.counters().forward_dropped;
    let before = dropped(&party);
    let dead_qpn = party.processes[victim].qpn;
    let address = party.own.address();
    for _ in 0..20 {
        send_all(&mut party.own, address, dead_qpn, &[24]);
        party.talk_with(Duration::from_millis(2), |number| number != victim);
    }
    println!(
        "packets for the dead dropped here: {} (others drop the rest)",
        dropped(&party) - before
    );
}

#[test]
fn a_member_that_comes_does_not_disturb_the_others() {
    let mut party = Party::of(3);
    for _ in 0..4 {
        let mut process = Process::start(party.own.address());
        party.reset();
        party.talk_for(Duration::from_millis(150));
        check_silence(&party, "while another joined", |_| true);
        process.qpn = process.line("slice ").trim().parse::<u32>().unwrap() + 5;
        process.last_heard = Instant::now();
        party.processes.push(process);
    }
}
