//! Gives the shared object its name and the version nodes of libibverbs and librdmacm. Which symbol lies in which node is said by
//! `.symver` directives in `src/symbols.rs`; a node without symbols must exist all the same, since a program that was
//! linked against it does not load without.

use std::fmt::Write;
use std::process::Command;

/// The nodes of libibverbs, oldest first, the names that its private node has had over the years, and the nodes of
/// librdmacm.
const NODES: [&str; 27] = [
    "IBVERBS_1.0",
    "IBVERBS_1.1",
    "IBVERBS_1.5",
    "IBVERBS_1.6",
    "IBVERBS_1.7",
    "IBVERBS_1.8",
    "IBVERBS_1.9",
    "IBVERBS_1.10",
    "IBVERBS_1.11",
    "IBVERBS_1.12",
    "IBVERBS_1.13",
    "IBVERBS_1.14",
    "IBVERBS_1.15",
    "IBVERBS_1.16",
    "IBVERBS_PRIVATE_25",
    "IBVERBS_PRIVATE_33",
    "IBVERBS_PRIVATE_34",
    "IBVERBS_PRIVATE_57",
    "IBVERBS_PRIVATE_59",
    "IBVERBS_PRIVATE_64",
    "IBVERBS_PRIVATE_65",
    "RDMACM_1.0",
    "RDMACM_1.1",
    "RDMACM_1.2",
    "RDMACM_1.3",
    "RDMACM_1.4",
    "RDMACM_1.5",
];

const NEWEST: &str = "IBVERBS_1.16";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let mut script = String::new();
    for node in NODES {
        // All other names stay inside, also with a linker that takes this script in place of the compiler's (zig's). The
        // newest public node says so since it holds no old names, which the wildcard of their node would hide.
        let others = if node == NEWEST { " local: *; " } else { "" };
        writeln!(script, "{node} {{{others}}};").expect("a string takes everything");
    }
    let path = format!("{out}/versions.map");
    std::fs::write(&path, script).expect("OUT_DIR is writable");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={path}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    choose_linker();
    // Threads of ours run in it: a program's dlclose must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// GNU ld refuses a second version script beside the compiler's; lld takes both. It comes with Rust, which uses it by
/// default on x86-64 only.
fn choose_linker() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    if variable("CARGO_CFG_TARGET_ARCH") == "x86_64" {
        return;
    }
    let sysroot = Command::new(variable("RUSTC"))
        .args(["--print", "sysroot"])
        .output()
        .expect("the compiler runs");
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    let host = variable("HOST");
    // Where Rust comes without its lld, that of the system is found.
    println!("cargo::rustc-cdylib-link-arg=-B{sysroot}/lib/rustlib/{host}/bin/gcc-ld");
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
}
