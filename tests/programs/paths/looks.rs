//! Looks at the files of an RDMA device as Rust programs do.
use std::fs;
use std::os::unix::fs::FileTypeExt;

fn main() {
    let card = "/sys/class/infiniband/softroce0";
    let names: Vec<_> = fs::read_dir("/sys/class/infiniband").unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["softroce0"]);
    assert_eq!(fs::read_to_string(format!("{card}/ports/1/state")).unwrap(), "4: ACTIVE\n");
    assert!(fs::symlink_metadata(card).unwrap().is_symlink());
    assert!(fs::metadata("/dev/infiniband/uverbs0").unwrap().file_type().is_char_device());
    assert!(fs::exists("/dev/infiniband/umad0").unwrap());
    assert!(fs::read_link(card).unwrap().is_relative());
    assert_eq!(
        fs::canonicalize(format!("{card}/device")).unwrap().to_str(),
        Some("/sys/devices/virtual/softroce/softroce0")
    );
}
