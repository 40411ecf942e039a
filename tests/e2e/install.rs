//! Installing under a prefix and removing it, the release archive, and a project of somebody else's that uses it.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use e2e::bed::{NOBODY, is_root, needs_program, needs_root};
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::program::{keep, repository};
use e2e::workflow::{Job, Starter, copy_folder};
use e2e::{Bed, Case, Finished, Outcome, Program, Scratch, Stop, softroce};

use crate::pingpong::free_port;

const LIMIT: Duration = Duration::from_secs(60);
/// What a project's CI may take, from a clean folder to its last test.
const CI_TIME_MAX: Duration = Duration::from_secs(20);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "an installation works from its prefix and from where that is moved to, and goes without a trace",
            installed_and_removed,
        ),
        Case::new(
            "an installation anew replaces what it brought and removes what is no longer part of it",
            upgraded,
        ),
        Case::new(
            "an installation for a package is staged in front of its prefix",
            staged,
        ),
        Case::new(
            "an installation refuses a place that is taken or closed and says so",
            refused,
        ),
        Case::new("no shared object lies where ldconfig would link it", hidden),
        Case::new(
            "a release archive is the same each time and tells its oldest glibc",
            reproducible,
        ),
        Case::new(
            "a release archive runs as nobody from where it is unpacked",
            unpacked,
        ),
        Case::new(
            "the cmake example passes its own ci file in a clean folder",
            || example(Namespaces::Allowed),
        ),
        Case::new(
            "the cmake example passes its own ci file where user namespaces are forbidden",
            || example(Namespaces::Forbidden),
        ),
        Case::new(
            "after the action programs run on softroce without more words",
            acted,
        ),
        Case::new("a pingpong runs where user namespaces are forbidden", forbidden),
    ]
}

/// Whether programs may make user namespaces.
#[derive(Clone, Copy)]
enum Namespaces {
    Allowed,
    Forbidden,
}

/// The install script of this checkout, on what is built already, as the tests' own user.
fn install(bed: &Bed, prefix: &Path) -> Result<Program, Stop> {
    let built = softroce()?
        .parent()
        .ok_or_else(|| Stop::fail("no build directory"))?;
    let script = repository().join("contrib/install.sh");
    Ok(Program::new(&bed.scratch, [script.as_os_str()])
        .args(["--prefix".as_ref(), prefix.as_os_str()])
        .args(["--from".as_ref(), built.as_os_str()]))
}

fn uninstall(bed: &Bed, prefix: &Path) -> Result<Finished, Stop> {
    let script = repository().join("contrib/install.sh");
    Program::new(&bed.scratch, [script.as_os_str()])
        .args(["--uninstall".as_ref(), "--prefix".as_ref(), prefix.as_os_str()])
        .finish(LIMIT)
}

/// Every file and directory below a directory, by its path there.
fn tree(root: &Path) -> Result<BTreeSet<PathBuf>, Stop> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
            let path = entry.path();
            found.insert(path.strip_prefix(root).map_err(Stop::fail)?.to_owned());
        }
    }
    Ok(found)
}

/// `softroce run -- ibv_devices`, or of `devices` of our own where rdma-core's programs are not installed.
fn shows_a_device(bed: &Bed, command: &Path) -> Outcome {
    needs_program("ibv_devices", "ibverbs-utils")?;
    let finished = bed
        .program(&bed.here, [command])
        .args(["run", "--", "ibv_devices"])
        .finish(LIMIT)?;
    finished.succeeded()?;
    ensure(finished.stdout.contains("softroce0"), || {
        format!("no device: {finished}")
    })
}

/// What installed texts link to is installed, or named by where the project is.
fn no_dead_links(texts: &Path) -> Outcome {
    for name in tree(texts)?
        .iter()
        .filter(|name| name.extension().is_some_and(|kind| kind == "md"))
    {
        let text = fs::read_to_string(texts.join(name))?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = texts
                .join(name)
                .with_file_name(link.split('#').next().unwrap_or_default());
            ensure(
                link.starts_with("https://") || link.starts_with('#') || path.exists(),
                || format!("{} links to {link}, which is not installed", name.display()),
            )?;
        }
    }
    Ok(())
}

fn installed_and_removed() -> Outcome {
    let bed = Bed::loopback()?;
    let prefix = bed.scratch.file("pre fix");
    for _ in 0..2 {
        install(&bed, &prefix)?.finish(LIMIT)?.succeeded()?;
    }
    shows_a_device(&bed, &prefix.join("bin/softroce"))?;
    no_dead_links(&prefix.join("share/doc/softroce"))?;
    let link = bed.scratch.file("softroce-by-another-name");
    symlink(prefix.join("bin/softroce"), &link)?;
    shows_a_device(&bed, &link)?;

    let moved = bed.scratch.file("moved");
    fs::rename(&prefix, &moved)?;
    shows_a_device(&bed, &moved.join("bin/softroce"))?;

    // A file of somebody else's stays, with its directory.
    let foreign = moved.join("bin/foreign");
    fs::write(&foreign, "")?;
    uninstall(&bed, &moved)?.succeeded()?;
    let left: Vec<PathBuf> = tree(&moved)?.into_iter().collect();
    ensure(
        left == [PathBuf::from("bin"), PathBuf::from("bin/foreign")],
        || format!("left behind: {left:?}"),
    )?;

    install(&bed, &prefix)?.finish(LIMIT)?.succeeded()?;
    uninstall(&bed, &prefix)?.succeeded()?;
    ensure(!prefix.exists(), || "the prefix is still there".into())?;
    uninstall(&bed, &prefix)?.refused_naming(&["nothing is installed"])
}

fn upgraded() -> Outcome {
    let bed = Bed::loopback()?;
    let prefix = bed.scratch.file("prefix");
    install(&bed, &prefix)?.finish(LIMIT)?.succeeded()?;
    let expected = tree(&prefix)?;
    // As an older version would have left it, with a file more.
    let list = prefix.join("lib/softroce/installed");
    let older = fs::read_to_string(&list)? + "f lib/softroce/old.so\nf ../outside\n";
    fs::write(&list, older)?;
    fs::write(prefix.join("lib/softroce/old.so"), "old")?;
    fs::write(prefix.join("bin/softroce"), "old")?;
    fs::write(bed.scratch.file("outside"), "not ours")?;

    install(&bed, &prefix)?.finish(LIMIT)?.succeeded()?;
    let found = tree(&prefix)?;
    ensure(found == expected, || {
        format!("{found:?} is there, not {expected:?}")
    })?;
    shows_a_device(&bed, &prefix.join("bin/softroce"))?;
    ensure(bed.scratch.file("outside").exists(), || {
        "a file outside the prefix was removed".into()
    })
}

fn staged() -> Outcome {
    let bed = Bed::loopback()?;
    let stage = bed.scratch.file("stage");
    let finished = install(&bed, Path::new("/opt/softroce"))?
        .variable("DESTDIR", &stage)
        .finish(LIMIT)?;
    finished.succeeded()?;
    ensure(stage.join("opt/softroce/bin/softroce").is_file(), || {
        format!("nothing staged: {finished}")
    })?;
    shows_a_device(&bed, &stage.join("opt/softroce/bin/softroce"))
}

fn refused() -> Outcome {
    let bed = Bed::loopback()?;
    let prefix = bed.scratch.file("prefix");
    fs::create_dir_all(prefix.join("bin"))?;
    fs::write(prefix.join("bin/softroce"), "somebody else's")?;
    install(&bed, &prefix)?
        .finish(LIMIT)?
        .refused_naming(&["bin/softroce", "is not from this script"])?;
    let left = fs::read_to_string(prefix.join("bin/softroce"))?;
    ensure(left == "somebody else's" && tree(&prefix)?.len() == 2, || {
        format!("a refused installation changed something: {left}")
    })?;
    install(&bed, &prefix.join("bin/softroce"))?
        .finish(LIMIT)?
        .refused_naming(&["no directory"])?;

    let closed = bed.scratch.file("closed");
    fs::create_dir(&closed)?;
    fs::set_permissions(&closed, Permissions::from_mode(0o555))?;
    let unpacked = unpack(&bed)?;
    bed.program(&bed.here, [unpacked.join("install.sh")])
        .args(["--prefix".as_ref(), closed.as_os_str()])
        .finish(LIMIT)?
        .refused_naming(&["cannot write", "closed", "--prefix"])
}

fn hidden() -> Outcome {
    let bed = Bed::loopback()?;
    let prefix = bed.scratch.file("prefix");
    install(&bed, &prefix)?.finish(LIMIT)?.succeeded()?;
    let at_risk: Vec<PathBuf> = tree(&prefix)?
        .into_iter()
        .filter(|path| path.parent() == Some(Path::new("lib")) && path.to_string_lossy().contains(".so"))
        .collect();
    ensure(at_risk.is_empty(), || {
        format!("ldconfig would link libibverbs.so.1 to one of {at_risk:?}")
    })
}

/// Makes the archive; returns its path and what the script printed.
fn make_archive(into: &Scratch) -> Result<(PathBuf, String), Stop> {
    needs_program("objdump", "binutils")?;
    let built = softroce()?
        .parent()
        .ok_or_else(|| Stop::fail("no build directory"))?;
    let script = repository().join("contrib/release.sh");
    let finished = Program::new(into, [script.as_os_str()])
        .args(["--from".as_ref(), built.as_os_str()])
        .args(["--out".as_ref(), into.path().as_os_str()])
        .finish(LIMIT)?;
    finished.succeeded()?;
    let archive = fs::read_dir(into.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with("-linux.tar.gz"))
        .ok_or_else(|| Stop::Fail(format!("no archive: {finished}")))?;
    Ok((archive, finished.stdout))
}

/// An archive that all cases share.
fn archive() -> Result<&'static Path, Stop> {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    if MADE.get().is_none() {
        let scratch = Scratch::new()?;
        let (archive, _) = make_archive(&scratch)?;
        keep(scratch)?;
        let _ = MADE.set(archive);
    }
    MADE.get()
        .map(PathBuf::as_path)
        .ok_or_else(|| Stop::fail("no archive"))
}

/// Unpacks the archive as nobody, and returns its only directory.
fn unpack(bed: &Bed) -> Result<PathBuf, Stop> {
    let archive = archive()?;
    bed.program(
        &bed.here,
        ["tar", "-C", &bed.scratch.path().display().to_string(), "-xzf"],
    )
    .args([archive])
    .finish(LIMIT)?
    .succeeded()?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    Ok(bed.scratch.file(name.trim_end_matches(".tar.gz")))
}

fn reproducible() -> Outcome {
    let scratch = Scratch::new()?;
    let (again, told) = make_archive(&scratch)?;
    ensure(fs::read(archive()?)? == fs::read(&again)?, || {
        "two archives of the same files differ".into()
    })?;
    ensure(told.contains("runs with glibc 2."), || {
        format!("the oldest glibc should be told: {told}")
    })
}

fn unpacked() -> Outcome {
    let bed = Bed::loopback()?;
    let folder = unpack(&bed)?;
    let readme = fs::read_to_string(folder.join("README"))?;
    ensure(readme.contains("glibc 2."), || {
        format!("the README does not tell the oldest glibc:\n{readme}")
    })?;
    let command = folder.join("bin/softroce");
    conversation(&[command], |words| bed.program(&bed.here, words))
}

fn acted() -> Outcome {
    needs_program("ibv_devices", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let file = bed.scratch.file("ci.yml");
    fs::write(
        &file,
        "jobs:\n  test:\n    steps:\n      - uses: softroce/softroce/contrib/github-action@v0\n        \
         with:\n          environment: true\n      - run: ibv_devices\n",
    )?;
    let starter: &Starter = &|words| bed.program(&bed.here, words);
    let archive = archive()?.display().to_string();
    let environment = [("SOFTROCE_ARCHIVE", archive.as_str())];
    let printed = Job::new(&bed, starter, bed.scratch.path(), &environment, LIMIT)?.run(&file)?;
    ensure(printed.contains("softroce0"), || {
        format!("no device after the action:\n{printed}")
    })
}

/// A pingpong of rdma-core's, both ends under this `softroce`.
fn conversation(softroce: &[PathBuf], start: impl Fn(&[String]) -> Program) -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let port = free_port();
    let mut words: Vec<String> = softroce.iter().map(|word| word.display().to_string()).collect();
    words.extend(["run", "--", "ibv_rc_pingpong", "-g", "0", "-c", "-n", "100", "-p"].map(String::from));
    words.push(port.to_string());
    let server = start(&words).start()?;
    wait_for_listener(&server, port)?;
    words.push("127.0.0.1".into());
    for end in [start(&words).finish(LIMIT)?, server.wait(LIMIT)?] {
        end.succeeded()?;
        ensure(end.stdout.contains("100 iters in"), || {
            format!("no result: {end}")
        })?;
    }
    Ok(())
}

/// Fails unless a program started so cannot make a user namespace.
fn forbids_namespaces(bed: &Bed) -> Outcome {
    let tried = bed
        .program_without_user_namespaces(&bed.here, ["unshare", "--user", "true"])
        .finish(LIMIT)?;
    ensure(tried.code() == Some(1), || {
        format!("a user namespace could be made: {tried}")
    })
}

fn forbidden() -> Outcome {
    needs_root("forbid user namespaces to a program")?;
    let bed = Bed::loopback()?;
    forbids_namespaces(&bed)?;
    conversation(&[softroce()?.to_owned()], |words| {
        bed.program_without_user_namespaces(&bed.here, words)
    })
}

/// The example project, run by its own CI file in a folder that holds nothing else, as nobody, with the archive.
fn example(namespaces: Namespaces) -> Outcome {
    needs_program("cmake", "cmake")?;
    needs_program("g++", "g++")?;
    if !Path::new("/usr/include/gtest/gtest.h").exists() {
        return Err(Stop::skip(
            "the headers of GoogleTest are missing (package libgtest-dev)",
        ));
    }
    let bed = Bed::loopback()?;
    let starter: &Starter = match namespaces {
        Namespaces::Allowed => &|words| bed.program(&bed.here, words),
        Namespaces::Forbidden => {
            needs_root("forbid user namespaces to a program")?;
            forbids_namespaces(&bed)?;
            &|words| bed.program_without_user_namespaces(&bed.here, words)
        }
    };
    let archive = archive()?.display().to_string();
    // A busy machine gets a second try.
    let mut seconds = Vec::new();
    for checkout in ["checkout", "checkout-again"] {
        let took = example_in(&bed, starter, &archive, &bed.scratch.file(checkout))?;
        if took < CI_TIME_MAX {
            return Ok(());
        }
        seconds.push(took);
    }
    Err(Stop::Fail(format!(
        "the example took {seconds:?}, over {CI_TIME_MAX:?}"
    )))
}

/// Runs the example once in `checkout`, which is made for it; returns the time that it took.
fn example_in(bed: &Bed, starter: &Starter, archive: &str, checkout: &Path) -> Result<Duration, Stop> {
    let project = repository().join("contrib/cmake-example");
    copy_folder(&project, checkout)?;
    if is_root() {
        chown(checkout, Some(NOBODY), Some(NOBODY))?;
    }
    let begun = Instant::now();
    let environment = [("SOFTROCE_ARCHIVE", archive)];
    let mut job = Job::new(bed, starter, checkout, &environment, LIMIT)?;
    let printed = job.run(&project.join(".github/workflows/ci.yml"))?;
    let took = begun.elapsed();
    ensure(
        printed.contains("100% tests passed, 0 tests failed out of 6"),
        || format!("not all tests of the example passed:\n{printed}"),
    )?;
    Ok(took)
}
