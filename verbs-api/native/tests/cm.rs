//! The connection manager against a library that lies, and libraries that do not belong together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use verbs_api::*;
use verbs_native::{Cm, DropIn, Native};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// The library, compiled once; `None` without a C compiler.
fn fake() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let name = format!("fake_rdmacm.{}.so", std::process::id());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_rdmacm.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&library)
            .arg(source)
            .output();
        match compiled {
            Err(error) => {
                println!("skipped: no C compiler: {error}");
                None
            }
            Ok(output) => {
                assert!(
                    output.status.success(),
                    "{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                // From now on it is found by its name, as long as the process lives.
                Native::open_library(&library, DropIn::Refused).expect("it has what it takes");
                std::fs::remove_file(&library).expect("its file");
                Some(library)
            }
        }
    };
    BUILT.get_or_init(build).as_deref()
}

/// A channel of it.
fn channel() -> Option<Cm> {
    let library = fake()?;
    let native = Native::open_library(library, DropIn::Refused).expect("it has what it takes");
    Some(native.connection_manager_of(library).expect("a channel"))
}

/// An id whose channel has the event of this trick.
fn tricked(cm: &Cm, space: CmPortSpace, trick: u16) -> verbs_native::CmId {
    let id = cm.create_id(space, 7).expect("an id");
    id.bind_addr(SocketAddr::from(([192, 0, 2, 1], trick)))
        .expect("bound");
    id
}

/// The error that taking the event of a trick gives. It is given back in any case, and there is no other.
fn refused(trick: u16) -> Option<String> {
    let cm = channel()?;
    let id = tricked(&cm, CmPortSpace::Tcp, trick);
    let error = cm.wait(PATIENCE).expect_err("a lie");
    assert!(cm.wait(Some(Duration::ZERO)).expect("nothing more").is_none());
    // It refuses to destroy ids whose events were not given back.
    id.destroy().expect("destroyed");
    Some(error.to_string())
}

#[test]
fn events_of_unknown_numbers_are_errors_that_name_them() {
    for (trick, number) in [(1, "77"), (2, "-1")] {
        if let Some(error) = refused(trick) {
            assert!(error.contains(&format!("unknown type {number}")), "{error}");
        }
    }
}

#[test]
fn events_that_name_no_id_or_a_wrong_one_are_errors() {
    for (trick, words) in [
        (3, "without an id"),
        (4, "without its listener"),
        (5, "an id that there is already"),
        (7, "NULL"),
    ] {
        if let Some(error) = refused(trick) {
            assert!(error.contains(words), "{error}");
        }
    }
}

#[test]
fn private_data_that_is_nowhere_is_none() {
    let Some(cm) = channel() else { return };
    let listener = tricked(&cm, CmPortSpace::Tcp, 6);
    let event = cm.wait(PATIENCE).expect("waiting").expect("a request");
    assert_eq!(
        (event.kind, event.cookie, event.private_data.as_slice()),
        (CmEventKind::ConnectRequest, 7, &[][..])
    );
    drop(event);
    listener.destroy().expect("destroyed");
}

#[test]
fn what_the_library_lacks_is_unsupported_by_name() {
    let Some(cm) = channel() else { return };
    let id = tricked(&cm, CmPortSpace::Tcp, 8);
    let event = cm.wait(PATIENCE).expect("waiting").expect("a response");
    assert_eq!(
        (event.kind, event.private_data.as_slice()),
        (CmEventKind::ConnectResponse, &b"ten bytes!"[..])
    );
    for (error, name) in [
        (id.accept(None).unwrap_err(), "rdma_establish"),
        (id.listen(1).unwrap_err(), "rdma_listen"),
        (id.established().unwrap_err(), "rdma_notify"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn an_id_that_is_null_or_has_no_address_or_device_is_no_harm() {
    let Some(cm) = channel() else { return };
    assert!(cm.create_id(CmPortSpace::Tcp, 0xdead).is_err());
    let id = tricked(&cm, CmPortSpace::Tcp, 10);
    assert_eq!((id.local_addr(), id.peer_addr()), (None, None));
    assert_eq!(id.device_name(), None);
    assert!(id.context().is_none());
    let refused = id.connect(&ConnectionParameters {
        qp: Some((1, QpType::Rc)),
        ..ConnectionParameters::default()
    });
    assert!(refused.unwrap_err().to_string().contains("no device"));
    let bound = tricked(&cm, CmPortSpace::Tcp, 4711);
    assert_eq!(bound.local_addr(), Some(SocketAddr::from(([192, 0, 2, 1], 4711))));
}

#[test]
fn destroying_an_id_waits_until_its_events_are_dropped() {
    let Some(cm) = channel() else { return };
    let id = tricked(&cm, CmPortSpace::Tcp, 9);
    let event = cm.wait(PATIENCE).expect("waiting").expect("an event");
    let (done, is_done) = std::sync::mpsc::channel();
    let destroyer = std::thread::spawn(move || {
        id.destroy().expect("destroyed");
        done.send(()).expect("somebody listens");
    });
    assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err());
    drop(event);
    is_done.recv_timeout(Duration::from_secs(10)).expect("it ends");
    destroyer.join().expect("and well");
}

#[test]
fn what_is_dropped_stays_until_its_last_event_is() {
    let Some(cm) = channel() else { return };
    let id = tricked(&cm, CmPortSpace::Tcp, 9);
    let event = cm.wait(PATIENCE).expect("waiting").expect("an event");
    drop(id);
    drop(cm);
    assert_eq!(event.cookie, 7);
}

#[test]
fn ids_and_their_waiting_requests_outlive_the_handle_of_their_channel() {
    let Some(cm) = channel() else { return };
    let listener = tricked(&cm, CmPortSpace::Tcp, 6);
    drop(cm);
    listener.set_cookie(8);
    listener.destroy().expect("destroyed");
}

#[test]
fn a_missing_librdmacm_is_unsupported_and_names_the_package() {
    let Some(library) = fake() else { return };
    let native = Native::open_library(library, DropIn::Refused).expect("opened");
    let error = native
        .connection_manager_of(Path::new("libno-such-thing.so.1"))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for word in ["libno-such-thing.so.1", "librdmacm1"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let error = native.connection_manager_of(Path::new("libc.so.6")).unwrap_err();
    assert!(error.to_string().contains("no librdmacm"), "{error}");
}

#[test]
fn a_librdmacm_of_another_libibverbs_is_refused() {
    let (Some(library), Ok(system)) = (fake(), Native::new()) else {
        return println!("skipped: no C compiler, or no libibverbs");
    };
    let error = system.connection_manager_of(library).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("another libibverbs"), "{error}");
}
