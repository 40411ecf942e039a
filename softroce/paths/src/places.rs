//! Which paths are ours: a walk along the components of a path. Pure.

/// How far a path leads towards one of our places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Root,
    Sys,
    Class,
    Devices,
    Virtual,
    Dev,
}

/// A path that lies at or below one of our places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    /// The directory of the place, with a slash at both ends.
    pub(crate) directory: &'static [u8],
    /// The component that makes it ours.
    pub(crate) name: &'a [u8],
    /// What follows: nothing, or something that begins with a slash.
    pub(crate) rest: &'a [u8],
}

/// The place that an absolute path leads to, if it is one of ours.
///
/// A path that climbs (`..`) on its way is not taken: where that leads depends on links.
pub(crate) fn place(path: &[u8]) -> Option<Place<'_>> {
    let mut step = Step::Root;
    let mut at = 0;
    if path.first() != Some(&b'/') {
        return None;
    }
    loop {
        let (name, end) = component(path, at)?;
        at = end;
        if name == b"." {
            continue;
        }
        let found = |directory| {
            Some(Place {
                directory,
                name,
                rest: &path[end..],
            })
        };
        step = match (step, name) {
            (Step::Root, b"sys") => Step::Sys,
            (Step::Root, b"dev") => Step::Dev,
            (Step::Sys, b"class") => Step::Class,
            (Step::Sys, b"devices") => Step::Devices,
            (Step::Devices, b"virtual") => Step::Virtual,
            (Step::Class, _) if is_class(name) => return found(b"/sys/class/"),
            (Step::Virtual, b"softroce") => return found(b"/sys/devices/virtual/"),
            (Step::Dev, b"infiniband") => return found(b"/dev/"),
            _ => return None,
        };
    }
}

/// The component at or after `at`, and where it ends.
fn component(path: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let start = at + path[at..].iter().position(|byte| *byte != b'/')?;
    let length = path[start..]
        .iter()
        .position(|byte| *byte == b'/')
        .unwrap_or(path.len() - start);
    Some((&path[start..start + length], start + length))
}

/// A class of the kernel's InfiniBand drivers: `infiniband`, `infiniband_verbs`, `infiniband_mad` and what else there
/// may be of real hardware.
fn is_class(name: &[u8]) -> bool {
    name.strip_prefix(b"infiniband")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'_')))
}

/// Whether a relative path may lead to one of our places from some directory; only then is it worth to ask which
/// directory it starts from.
pub(crate) fn may_lead_to_place(relative: &[u8]) -> bool {
    let mut at = 0;
    loop {
        let Some((name, end)) = component(relative, at) else {
            return false;
        };
        at = end;
        match name {
            b"." | b".." => {}
            b"sys" | b"class" | b"devices" | b"virtual" | b"softroce" | b"dev" => return true,
            _ => return is_class(name),
        }
    }
}

/// `relative` seen from the physical directory `base`: what is left of the base, and of the path, once the climbing
/// components at its beginning are taken.
pub(crate) fn climbed<'a>(base: &'a [u8], relative: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let (mut base, mut at) = (base, 0);
    while let Some((name, end)) = component(relative, at) {
        match name {
            b"." => {}
            b".." => {
                let slash = base.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                base = &base[..slash];
            }
            _ => break,
        }
        at = end;
    }
    (base, &relative[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(path: &str) -> Option<String> {
        place(path.as_bytes()).map(|place| {
            let parts = [place.directory, place.name, place.rest].concat();
            String::from_utf8(parts).unwrap()
        })
    }

    #[test]
    fn paths_of_the_kernels_infiniband_drivers_are_ours() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband/softroce0/ports/1/gids/0",
            "/sys/class/infiniband_verbs/uverbs0/ibdev",
            "/sys/class/infiniband_mad/abi_version",
            "/sys/devices/virtual/softroce/softroce0/numa_node",
            "/dev/infiniband/uverbs0",
            "/sys/class/infiniband/../net",
        ] {
            assert_eq!(ours(path).as_deref(), Some(path));
        }
    }

    #[test]
    fn others_are_not() {
        for path in [
            "",
            "/",
            "//",
            "sys",
            "/sys",
            "/sys/",
            "/sys/class",
            "/sys/class/net",
            "/sys/class/infinibandx",
            "/dev/infiniband_x",
            "/dev/null",
            "/devices/virtual/softroce",
            "/sys/devices/virtual",
            "/usr/sys/class/infiniband",
            "/sys/class/net/../infiniband",
            "/sys/../sys/class/infiniband",
            "/sysx/class/infiniband",
            "/proc/self/fd/3",
        ] {
            assert_eq!(ours(path), None, "{path}");
        }
    }

    #[test]
    fn superfluous_slashes_and_dots_change_nothing() {
        assert_eq!(
            ours("//sys/./class///infiniband//softroce0").as_deref(),
            Some("/sys/class/infiniband//softroce0")
        );
        assert_eq!(ours("/./dev/infiniband").as_deref(), Some("/dev/infiniband"));
    }

    #[test]
    fn bytes_that_are_no_text_are_fine() {
        assert!(place(b"/sys/class/infiniband/\xff\xfe").is_some());
        assert_eq!(place(b"/sys/\xff/infiniband"), None);
    }

    #[test]
    fn only_few_relative_paths_are_worth_a_look_at_the_directory() {
        for path in [
            "infiniband",
            "class/infiniband",
            "./infiniband_mad",
            "../../sys",
            "dev/infiniband",
        ] {
            assert!(may_lead_to_place(path.as_bytes()), "{path}");
        }
        for path in ["", ".", "..", "main.c", "src/class", "../lib/x.so", "infinibands"] {
            assert!(!may_lead_to_place(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn climbing_goes_up_the_directory_but_not_above_the_root() {
        assert_eq!(
            climbed(b"/sys/class", b"infiniband"),
            (&b"/sys/class"[..], &b"infiniband"[..])
        );
        assert_eq!(
            climbed(b"/sys/class/net", b"./../infiniband/x"),
            (&b"/sys/class"[..], &b"/infiniband/x"[..])
        );
        assert_eq!(climbed(b"/sys", b"../../../dev"), (&b""[..], &b"/dev"[..]));
    }
}
