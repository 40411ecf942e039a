"""Python's multiprocessing over pyverbs: children made by fork and by spawn talk with their parent and each other."""

import multiprocessing
import sys

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_SEND,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

SIZE = 3000
ROUNDS = 30


class End:
    """A connected queue pair on a device of this process."""

    def __init__(self, pipe):
        self.context = Context(name="softroce0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 32)
        self.mr = MR(self.pd, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE)
        init = QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(16, 16, 1, 1))
        self.qp = QP(self.pd, init, QPAttr(port_num=1))
        self.counts = {"send": 0, "receive": 0}
        pipe.send((self.qp.qp_num, str(self.context.query_gid(1, 0))))
        number, gid = pipe.recv()
        route = GlobalRoute(dgid=GID(gid), sgid_index=0)
        attributes = QPAttr(port_num=1)
        attributes.dest_qp_num = number
        attributes.path_mtu = 3
        attributes.min_rnr_timer = 12
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 14, 7, 7
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attributes)
        self.post_receive()
        pipe.send("ready")
        assert pipe.recv() == "ready"

    def post_receive(self):
        self.qp.post_recv(RecvWR(num_sge=1, wr_id=1, sg=[SGE(self.mr.buf + SIZE, SIZE, self.mr.lkey)]))

    def send(self, number):
        self.mr.write(bytes((number + at) % 251 for at in range(SIZE)), SIZE)
        sge = SGE(self.mr.buf, SIZE, self.mr.lkey)
        flags = IBV_SEND_SIGNALED
        self.qp.post_send(SendWR(wr_id=2, num_sge=1, sg=[sge], opcode=IBV_WR_SEND, send_flags=flags))

    def wait(self, kind):
        while self.counts[kind] == 0:
            for completion in self.cq.poll(4)[1]:
                assert completion.status == IBV_WC_SUCCESS, completion
                self.counts["receive" if completion.wr_id == 1 else "send"] += 1
        self.counts[kind] -= 1

    def expect(self, number):
        self.wait("receive")
        assert self.mr.read(SIZE, SIZE) == bytes((number + at) % 251 for at in range(SIZE))
        self.post_receive()


def ask(pipe):
    end = End(pipe)
    for number in range(ROUNDS):
        end.send(number)
        end.expect(number + 100)
        end.wait("send")
    pipe.send("done")
    assert pipe.recv() == "done"


def answer(pipe):
    end = End(pipe)
    for number in range(ROUNDS):
        end.expect(number)
        end.send(number + 100)
        end.wait("send")
    pipe.send("done")
    assert pipe.recv() == "done"


def main():
    unused = Context(name="softroce0")
    for method in ("fork", "spawn", "forkserver"):
        made = multiprocessing.get_context(method)
        # One child talks with this process, two talk with each other.
        (here, there), (left, right) = made.Pipe(), made.Pipe()
        parts = [(ask, there), (ask, left), (answer, right)]
        children = [made.Process(target=part, args=(pipe,)) for part, pipe in parts]
        for child in children:
            child.start()
        answer(here)
        for child in children:
            child.join(20)
            assert child.exitcode == 0, (method, child)
        print(f"{method}: done")
    unused.close()


if __name__ == "__main__":
    sys.exit(main())
