"""Looks at the files of an RDMA device as Python programs do."""
import glob
import os
import pathlib
import stat

card = "/sys/class/infiniband/softroce0"
assert os.listdir("/sys/class/infiniband") == ["softroce0"]
assert [entry.name for entry in os.scandir("/sys/class/infiniband_verbs") if entry.is_dir()] == ["uverbs0"]
assert open(card + "/ports/1/gid_attrs/types/0").read() == "RoCE v2\n"
assert os.path.islink(card) and os.path.isdir(card)
assert os.path.realpath(card + "/device") == "/sys/devices/virtual/softroce/softroce0"
assert glob.glob("/sys/class/infiniband/*/ports/1/gids/*") == [card + "/ports/1/gids/0"]
assert stat.S_ISCHR(os.stat("/dev/infiniband/uverbs0").st_mode)
assert os.access("/dev/infiniband/uverbs0", os.R_OK | os.W_OK)
assert pathlib.Path(card, "node_type").read_text() == "1: CA\n"
directory = os.open("/sys/class", os.O_RDONLY)
assert os.stat("infiniband/softroce0/fw_ver", dir_fd=directory).st_size > 1
os.chdir(card)
assert os.path.exists("ports/1") and os.getcwd().startswith("/sys/devices/virtual/softroce/")
assert "infiniband" in {part for top, parts, _ in os.walk("/sys/devices/virtual/softroce") for part in parts}
