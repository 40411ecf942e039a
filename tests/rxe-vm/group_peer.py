#!/usr/bin/python3
"""A member of the multicast group of group.sh, on a kernel RDMA device (pyverbs). It only receives.

The other end is the listener of `peer group` (package e2e); both must agree on the constants below.
"""
import argparse
import ipaddress
import json
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR

from interop_peer import Failure, Line, call

GRH = 40
SLOT = GRH + 64
BATCH = 50                  # messages between two agreements over TCP
AFTER_LEAVING = 100         # messages after one member has left
QKEY = 0x11223344
PATIENCE_SECONDS = 60


class Member:
    """A UD queue pair with receives, in a group from `join` on."""

    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 4 * BATCH)
        self.mr = MR(self.pd, 2 * BATCH * SLOT, e.IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(max_send_wr=1, max_recv_wr=2 * BATCH, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=cap)
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr)   # goes up to RTS
        self.received = 0
        for slot in range(2 * BATCH):
            self.post(slot)

    def join(self, group):
        # As the verbs have it: an IPv4 group is a mapped GID.
        self.group = ipaddress.ip_address(group)
        self.qp.attach_mcast(GID(group), 0)

    def leave(self, group):
        self.qp.detach_mcast(GID(group), 0)

    def post(self, slot):
        sge = SGE(self.mr.buf + slot * SLOT, SLOT, self.mr.lkey)
        self.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[sge]))

    def receive(self, first, count, sender):
        """Exactly these messages, each once and in order."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        expected = first
        while expected < first + count:
            got, completions = self.cq.poll(16)
            for wc in completions[:got]:
                if wc.status != e.IBV_WC_SUCCESS:
                    raise Failure(f"a receive ended with status {wc.status}")
                (number,) = struct.unpack("<Q", self.mr.read(8, wc.wr_id * SLOT + GRH))
                if number != expected or wc.src_qp != sender:
                    raise Failure(f"message {number} of queue pair {wc.src_qp} came, {expected} was expected")
                self.post(wc.wr_id)
                self.received += 1
                expected += 1
            if time.monotonic() > deadline:
                raise Failure(f"message {expected} has not come for {PATIENCE_SECONDS} s")

    def hears_nothing(self):
        time.sleep(0.5)
        got, _ = self.cq.poll(1)
        if got:
            raise Failure("one message too many")


def follow(member, line):
    plan = line.hear("plan")
    group, sender, count = plan["group"], plan["sender"], plan["count"]
    member.join(group)
    line.tell("joined")

    def receive(first, count):
        for at in range(first, first + count, BATCH):
            member.receive(at, BATCH, sender)
            line.hear("sent")
            line.tell("got")

    receive(0, count)
    said = json.loads(line.file.readline() or "{}")
    if said.get("type") == "stay":
        receive(count, AFTER_LEAVING)
    elif said.get("type") == "leave":
        before = member.received
        member.leave(group)
        line.tell("left")
        line.hear("over")
        member.hears_nothing()
        line.tell("silent", received=member.received - before)
    else:
        raise Failure(f"the sender said {said}")
    member.hears_nothing()
    print(json.dumps({"kernel": True, "received": member.received, "left": said["type"] == "leave"}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="rxe0")
    parser.add_argument("--call", required=True, metavar="ADDRESS")
    parser.add_argument("--port", type=int, default=18700)
    arguments = parser.parse_args()
    try:
        follow(Member(arguments.device), Line(call(arguments.call, arguments.port)))
    except (Failure, OSError) as failure:
        print(f"group_peer.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
