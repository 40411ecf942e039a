//! Opening the library: what a user is told when it cannot be.

use std::path::Path;

use verbs_api::{ErrorKind, Provider};
use verbs_native::{DropIn, Native};

#[test]
fn a_missing_library_is_an_error_that_names_the_package() {
    let error = Native::open_library(Path::new("libno-such-thing.so.1"), DropIn::Refused).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("libno-such-thing.so.1"), "{error}");
    assert!(error.to_string().contains("rdma-core"), "{error}");
}

#[test]
fn another_library_is_an_error_that_names_the_missing_function() {
    let error = Native::open_library(Path::new("libc.so.6"), DropIn::Refused).unwrap_err();
    assert!(error.to_string().contains("ibv_get_device_list"), "{error}");
}

#[test]
fn a_path_with_a_zero_byte_is_refused() {
    assert_eq!(
        Native::open_library(Path::new("a\0b"), DropIn::Refused)
            .unwrap_err()
            .kind(),
        ErrorKind::Invalid
    );
}

#[test]
fn the_system_library_lists_its_devices_and_knows_no_invented_one() {
    let native = match Native::new() {
        Ok(native) => native,
        Err(reason) => return println!("skipped: {reason}"),
    };
    match native.devices() {
        Ok(devices) => assert!(devices.iter().all(|device| !device.name.is_empty())),
        Err(reason) => return println!("skipped: {reason}"),
    }
    let error = native.open("no-such-device").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no-such-device"), "{error}");
}
