#!/usr/bin/python3
"""One end of the interoperability run, on a kernel RDMA device (pyverbs).

The other end is either `peer interop` on softroce (package e2e), or this program again on another kernel device, which
checks the run itself. README.md in this folder describes the conversation; both ends must agree on the
constants below.
"""
import argparse
import json
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MESSAGES = 1000             # of each operation in each direction
BATCH = 32                  # messages between two agreements over TCP
SLOT = 4096                 # bytes of memory for each message of a batch
INBOX = BATCH * SLOT        # offset: what the peer reads, writes and sends to; below it, the outbox
LENGTH = 2 * BATCH * SLOT   # bytes of registered memory
SIZES = [0, 1, 63, 256, 1023, 1024, 1025, 2048, 4096]
OPERATIONS = ["send", "write", "read", "compare_swap", "fetch_add"]
OUTSTANDING = 4             # READs and atomics in flight, each way
TIMEOUT = 20                # ACK timeout exponent: 4.3 s, since an emulated machine is slow
COMPLETION_SECONDS = 60

# Counters of rxe that move when anything was sent twice, was missing, or came at the wrong time.
COUNTERS = [
    "duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "rcvd_seq_err", "send_rnr_err",
    "completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err",
]

# 7 is odd, so that every pattern is a slice of one table: byte j of the pattern with this start is start + 7 j.
TABLE = bytes((7 * x) & 255 for x in range(256 + SLOT))
INVERSE_OF_7 = 183


def size_of(i):
    return SIZES[i % len(SIZES)]


def pattern(operation, requester, i):
    start = (13 * i + 50 * OPERATIONS.index(operation) + (0 if requester == "caller" else 101)) & 255
    first = (start * INVERSE_OF_7) & 255
    return TABLE[first:first + size_of(i)]


class Failure(Exception):
    pass


class Line:
    """JSON objects, one a line, over TCP."""

    def __init__(self, sock):
        sock.settimeout(COMPLETION_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.file = sock, sock.makefile("r")

    def tell(self, kind, **fields):
        self.sock.sendall((json.dumps(dict(type=kind, **fields)) + "\n").encode())

    def hear(self, kind):
        line = self.file.readline()
        if not line:
            raise Failure(f"the peer went away, `{kind}` was expected")
        said = json.loads(line)
        if said.get("type") != kind:
            raise Failure(f"the peer said {said}, `{kind}` was expected")
        return said


class End:
    def __init__(self, device, gid_index):
        self.device = device
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 4 * BATCH)
        access = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
                  | e.IBV_ACCESS_REMOTE_ATOMIC)
        self.access, self.gid_index = access, gid_index
        self.mr = MR(self.pd, LENGTH, access)
        cap = QPCap(max_send_wr=2 * BATCH, max_recv_wr=2 * BATCH, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        self.psn = 0xFFFFF0  # wraps soon

    def hello(self):
        gid = self.context.query_gid(1, self.gid_index).gid
        return dict(qpn=self.qp.qp_num, psn=self.psn, gid=gid, va=self.mr.buf, rkey=self.mr.rkey, length=LENGTH)

    def connect(self, peer):
        self.peer = peer
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = self.access
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = peer["qpn"], peer["psn"], self.psn
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = OUTSTANDING
        attributes.min_rnr_timer, attributes.timeout = 12, TIMEOUT
        attributes.retry_cnt = attributes.rnr_retry = 7
        route = GlobalRoute(dgid=GID(val=peer["gid"]), sgid_index=self.gid_index, hop_limit=64)
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attributes)

    def write(self, data, offset):
        if data:
            self.mr.write(data, len(data), offset)

    def read(self, length, offset):
        return self.mr.read(length, offset) if length else b""

    def completions(self, count, opcode):
        done, deadline = [], time.time() + COMPLETION_SECONDS
        while len(done) < count:
            _, polled = self.cq.poll(count - len(done))
            for wc in polled or []:
                if wc.status != e.IBV_WC_SUCCESS or wc.opcode != opcode:
                    raise Failure(f"work {wc.wr_id} ended with status {int(wc.status)}, opcode {int(wc.opcode)}")
                done.append((int(wc.wr_id), int(wc.byte_len)))
            if not polled:
                if time.time() > deadline:
                    raise Failure(f"{count - len(done)} of {count} completions are missing")
                time.sleep(0.0005)
        return done

    def counters(self):
        values = {}
        for name in COUNTERS:
            try:
                with open(f"/sys/class/infiniband/{self.device}/ports/1/hw_counters/{name}") as file:
                    values[name] = int(file.read())
            except FileNotFoundError:
                pass
        return values

    # -- a batch at the end that answers

    def prepare(self, operation, requester, batch):
        for slot, i in enumerate(batch):
            offset = INBOX + slot * SLOT
            if operation == "send":
                self.qp.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[SGE(self.mr.buf + offset, SLOT, self.mr.lkey)]))
            elif operation == "write":
                self.write(bytes(size_of(i)), offset)
            elif operation == "read":
                self.write(pattern(operation, requester, i), offset)
        if operation in ("compare_swap", "fetch_add") and batch[0] == 0:
            self.write(bytes(8), INBOX)

    def check(self, operation, requester, batch):
        if operation == "send":
            wanted = [(i, size_of(i)) for i in batch]
            got = self.completions(len(batch), e.IBV_WC_RECV)
            if got != wanted:
                raise Failure(f"receives {got}, expected {wanted}")
        if operation in ("send", "write"):
            for slot, i in enumerate(batch):
                self.compare(operation, requester, i, INBOX + slot * SLOT)
        if operation in ("compare_swap", "fetch_add"):
            self.expect_word(after(operation, batch[-1] + 1), INBOX)

    # -- a batch at the end that requests

    def execute(self, operation, requester, batch):
        for slot, i in enumerate(batch):
            self.post(operation, requester, i, slot)
        opcode = {"send": e.IBV_WC_SEND, "write": e.IBV_WC_RDMA_WRITE, "read": e.IBV_WC_RDMA_READ,
                  "compare_swap": e.IBV_WC_COMP_SWAP, "fetch_add": e.IBV_WC_FETCH_ADD}[operation]
        got = [i for i, _ in self.completions(len(batch), opcode)]
        if got != list(batch):
            raise Failure(f"completions of {got}, expected {list(batch)}")
        for slot, i in enumerate(batch):
            if operation == "read":
                self.compare(operation, requester, i, slot * SLOT)
            if operation in ("compare_swap", "fetch_add"):
                self.expect_word(after(operation, i), slot * SLOT)

    def post(self, operation, requester, i, slot):
        offset = slot * SLOT
        length = 8 if operation in ("compare_swap", "fetch_add") else size_of(i)
        opcode = {"send": e.IBV_WR_SEND, "write": e.IBV_WR_RDMA_WRITE, "read": e.IBV_WR_RDMA_READ,
                  "compare_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
                  "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD}[operation]
        if operation in ("send", "write"):
            self.write(pattern(operation, requester, i), offset)
        elif length:
            self.write(b"\xee" * length, offset)
        request = SendWR(wr_id=i, opcode=opcode, num_sge=1, send_flags=e.IBV_SEND_SIGNALED,
                         sg=[SGE(self.mr.buf + offset, length, self.mr.lkey)])
        inbox = self.peer["va"] + INBOX
        if operation in ("write", "read"):
            request.set_wr_rdma(self.peer["rkey"], inbox + offset)
        elif operation == "compare_swap":
            request.set_wr_atomic(self.peer["rkey"], inbox, i, i + 1)
        elif operation == "fetch_add":
            request.set_wr_atomic(self.peer["rkey"], inbox, i, 0)
        self.qp.post_send(request, None)

    def compare(self, operation, requester, i, offset):
        wanted = pattern(operation, requester, i)
        if self.read(len(wanted), offset) != wanted:
            raise Failure(f"{operation} {i}: wrong data")

    def expect_word(self, wanted, offset):
        word, = struct.unpack("<Q", self.read(8, offset))
        if word != wanted:
            raise Failure(f"the word is {word}, expected {wanted}")


def after(operation, i):
    """The word that atomics act on, before message i: a count, or the sum of 0 to i-1."""
    return i if operation == "compare_swap" else i * (i - 1) // 2


def converse(end, line, role):
    line.tell("hello", **end.hello())
    end.connect(line.hear("hello"))
    line.tell("ready")
    line.hear("ready")
    before = end.counters()
    for operation in OPERATIONS:
        for requester in ("caller", "listener"):
            started = time.time()
            for first in range(0, MESSAGES, BATCH):
                batch = range(first, min(first + BATCH, MESSAGES))
                if role == requester:
                    line.hear("prepared")
                    end.execute(operation, requester, batch)
                    line.tell("executed")
                    line.hear("checked")
                else:
                    end.prepare(operation, requester, batch)
                    line.tell("prepared")
                    line.hear("executed")
                    end.check(operation, requester, batch)
                    line.tell("checked")
            print(f"{operation:13} by the {requester:8} {MESSAGES} messages ok, {time.time() - started:.1f} s",
                  flush=True)
    changed = {name: value - before[name] for name, value in end.counters().items() if value != before[name]}
    if changed:
        raise Failure(f"something was sent twice or went missing: {changed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="rxe0")
    parser.add_argument("--gid-index", type=int, default=1)
    parser.add_argument("--port", type=int, default=18600)
    parser.add_argument("--listen", metavar="ADDRESS")
    parser.add_argument("--call", metavar="ADDRESS")
    options = parser.parse_args()
    if options.listen:
        role, server = "listener", socket.create_server((options.listen, options.port))
        server.settimeout(COMPLETION_SECONDS)
        line = Line(server.accept()[0])
    else:
        role, line = "caller", Line(call(options.call, options.port))
    failure = None
    try:
        converse(End(options.device, options.gid_index), line, role)
    except (Failure, OSError) as error:
        failure = str(error)
    try:
        line.tell("result", ok=failure is None, detail=failure or "")
        theirs = line.hear("result")
    except (Failure, OSError) as error:
        theirs = dict(ok=False, detail=str(error))
    print(f"this end: {failure or 'ok'}")
    print(f"the peer: {'ok' if theirs['ok'] else 'failed'} {theirs.get('detail', '')}")
    sys.exit(0 if failure is None and theirs["ok"] else 1)


def call(address, port):
    for _ in range(150):
        try:
            return socket.create_connection((address, port), timeout=COMPLETION_SECONDS)
        except OSError as error:
            last = error
            time.sleep(0.2)
    sys.exit(f"cannot call {address}:{port}: {last}")


main()
