//! The mirrors have the layout of C: of the committed list of the newest headers, and of the headers installed here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::mem::offset_of;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs_sys::*;

const NEWEST: &str = include_str!("../../tests/data/abi/layout_master.txt");

/// The member's name in C, where some of our members are an anonymous union.
fn c_name<'a>(name: &str, member: &'a str) -> &'a str {
    match (name, member) {
        ("ibv_send_wr" | "ibv_wc", "imm_data") | ("ibv_send_wr", "bind_mw") => "<anon>",
        ("rdma_addr", "src_addr" | "dst_addr") => "<anon>",
        _ => member.strip_prefix("r#").unwrap_or(member),
    }
}

/// Size, and each member with its offset.
type SizeAndMembers<'a> = (usize, BTreeSet<(&'a str, usize)>);

#[test]
fn every_mirror_has_the_layout_of_the_newest_headers() {
    let mut structs: BTreeMap<&str, SizeAndMembers<'_>> = BTreeMap::new();
    let mut current = None;
    for line in NEWEST.lines() {
        if let Some(rest) = line.strip_prefix("struct ") {
            let (name, size) = rest.split_once(" size=").expect("a struct has a size");
            structs.insert(name, (size.parse().expect("a number"), BTreeSet::new()));
            current = Some(name);
        } else if let (Some(name), Some(member)) = (current, line.trim().strip_prefix('+')) {
            let (offset, member) = member.split_once(' ').expect("a member has a name");
            let offset = offset.parse().expect("a number");
            structs
                .get_mut(name)
                .expect("just inserted")
                .1
                .insert((member.trim(), offset));
        }
    }
    for mirror in mirrors() {
        let (size, members) = &structs[mirror.name];
        assert_eq!(mirror.size, *size, "size of {}", mirror.name);
        let ours: BTreeSet<_> = mirror
            .fields
            .iter()
            .map(|(name, offset)| (c_name(mirror.name, name), *offset))
            .collect();
        assert_eq!(&ours, members, "members of {}", mirror.name);
    }
}

/// Members that the headers of rdma-core 44 do not have yet.
const NEWER_THAN_SOME: [&str; 19] = [
    "ibv_mr_init_attr.length",
    "ibv_mr_init_attr.access",
    "ibv_mr_init_attr.comp_mask",
    "ibv_mr_init_attr.iova",
    "ibv_mr_init_attr.addr",
    "ibv_mr_init_attr.fd",
    "ibv_mr_init_attr.fd_offset",
    "ibv_mr_init_attr.dmah",
    "ibv_mr_init_attr.buf",
    "ibv_port_attr.active_speed_ex",
    "ibv_qp_ex.wr_atomic_write",
    "ibv_qp_ex.wr_flush",
    "verbs_context.free_buf",
    "verbs_context.alloc_buf",
    "verbs_context.dm_export_dmabuf_fd",
    "verbs_context.reg_mr_ex",
    "verbs_context.dealloc_dmah",
    "verbs_context.alloc_dmah",
    "verbs_context.query_port",
];

/// Members inside the unions of C.
fn nested() -> Vec<(&'static str, &'static str, usize)> {
    let wr = offset_of!(ibv_send_wr, wr);
    let bind = offset_of!(ibv_send_wr, bind_mw);
    vec![
        ("ibv_send_wr", "imm_data", offset_of!(ibv_send_wr, imm_data)),
        (
            "ibv_send_wr",
            "invalidate_rkey",
            offset_of!(ibv_send_wr, imm_data),
        ),
        (
            "ibv_send_wr",
            "wr.rdma.remote_addr",
            wr + offset_of!(ibv_send_wr_rdma, remote_addr),
        ),
        (
            "ibv_send_wr",
            "wr.rdma.rkey",
            wr + offset_of!(ibv_send_wr_rdma, rkey),
        ),
        (
            "ibv_send_wr",
            "wr.atomic.remote_addr",
            wr + offset_of!(ibv_send_wr_atomic, remote_addr),
        ),
        (
            "ibv_send_wr",
            "wr.atomic.compare_add",
            wr + offset_of!(ibv_send_wr_atomic, compare_add),
        ),
        (
            "ibv_send_wr",
            "wr.atomic.swap",
            wr + offset_of!(ibv_send_wr_atomic, swap),
        ),
        (
            "ibv_send_wr",
            "wr.atomic.rkey",
            wr + offset_of!(ibv_send_wr_atomic, rkey),
        ),
        ("ibv_send_wr", "wr.ud.ah", wr + offset_of!(ibv_send_wr_ud, ah)),
        (
            "ibv_send_wr",
            "wr.ud.remote_qpn",
            wr + offset_of!(ibv_send_wr_ud, remote_qpn),
        ),
        (
            "ibv_send_wr",
            "wr.ud.remote_qkey",
            wr + offset_of!(ibv_send_wr_ud, remote_qkey),
        ),
        (
            "ibv_send_wr",
            "qp_type.xrc.remote_srqn",
            offset_of!(ibv_send_wr, qp_type),
        ),
        (
            "ibv_send_wr",
            "bind_mw.mw",
            bind + offset_of!(ibv_send_wr_bind_mw, mw),
        ),
        (
            "ibv_send_wr",
            "bind_mw.rkey",
            bind + offset_of!(ibv_send_wr_bind_mw, rkey),
        ),
        (
            "ibv_send_wr",
            "bind_mw.bind_info",
            bind + offset_of!(ibv_send_wr_bind_mw, bind_info),
        ),
        ("ibv_send_wr", "tso.hdr", bind + offset_of!(ibv_send_wr_tso, hdr)),
        (
            "ibv_send_wr",
            "tso.hdr_sz",
            bind + offset_of!(ibv_send_wr_tso, hdr_sz),
        ),
        ("ibv_send_wr", "tso.mss", bind + offset_of!(ibv_send_wr_tso, mss)),
        ("rdma_addr", "src_storage", offset_of!(rdma_addr, src_addr)),
        ("rdma_addr", "dst_sin6", offset_of!(rdma_addr, dst_addr)),
        ("ibv_wc", "imm_data", offset_of!(ibv_wc, imm_data)),
        ("ibv_wc", "invalidated_rkey", offset_of!(ibv_wc, imm_data)),
        (
            "ibv_async_event",
            "element.port_num",
            offset_of!(ibv_async_event, element),
        ),
    ]
}

/// Compile and run `source` with the C compiler; what it printed, or the compiler's complaints.
fn compile_and_run(source: &str) -> Result<String, String> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("softroce-layout-{}-{run}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    let (c_file, program) = (dir.join("probe.c"), dir.join("probe"));
    std::fs::File::create(&c_file)
        .and_then(|mut f| f.write_all(source.as_bytes()))
        .expect("a temporary file");
    let compiled = Command::new("cc")
        .arg("-w")
        .arg("-o")
        .arg(&program)
        .arg(&c_file)
        .output();
    let result = match compiled {
        Err(error) => Err(format!("no C compiler: {error}")),
        Ok(out) if !out.status.success() => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        Ok(_) => {
            let out = Command::new(&program).output().expect("the probe runs");
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        }
    };
    let _ = std::fs::remove_dir_all(&dir);
    result
}

/// Whether a struct is one of librdmacm's, which has a header and a package of its own.
fn is_of_cm(name: &str) -> bool {
    name.starts_with("rdma_") || name == "ibv_sa_path_rec"
}

/// librdmacm's headers include those of libibverbs.
fn includes(with_cm: bool) -> &'static str {
    match with_cm {
        true => "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/rdma_cma.h>\n",
        false => "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n",
    }
}

/// Whether `<rdma/rdma_cma.h>` (package librdmacm-dev) is there.
fn has_cm_headers() -> bool {
    let found = compile_and_run(&format!("{}int main(void) {{ return 0; }}\n", includes(true)));
    if let Err(reason) = &found {
        println!("without librdmacm: <rdma/rdma_cma.h> (package librdmacm-dev) is missing: {reason}");
    }
    found.is_ok()
}

fn probe(members: &[(String, String, usize)]) -> Result<String, String> {
    let with_cm = members.iter().any(|(name, ..)| is_of_cm(name));
    let mut source = format!("{}int main(void) {{\n", includes(with_cm));
    for (name, member, _) in members {
        let line = format!("printf(\"{name}.{member} %zu\\n\", offsetof(struct {name}, {member}));\n");
        source.push_str(&line);
    }
    source.push_str("printf(\"size %zu\\n\", sizeof(struct verbs_context));\nreturn 0; }\n");
    compile_and_run(&source)
}

#[test]
fn every_mirror_has_the_layout_of_the_installed_headers() {
    let includes = compile_and_run("#include <infiniband/verbs.h>\nint main(void) { return 0; }\n");
    if let Err(reason) = includes {
        println!(
            "skipped: <infiniband/verbs.h> (package libibverbs-dev) or a C compiler is missing: {reason}"
        );
        return;
    }
    let mut members: Vec<(String, String, usize)> = Vec::new();
    for mirror in mirrors() {
        for (field, offset) in mirror.fields {
            if c_name(mirror.name, field) != "<anon>" {
                members.push((mirror.name.into(), c_name(mirror.name, field).into(), *offset));
            }
        }
    }
    members.extend(
        nested()
            .into_iter()
            .map(|(name, member, offset)| (name.into(), member.into(), offset)),
    );
    if !has_cm_headers() {
        members.retain(|(name, ..)| !is_of_cm(name));
    }
    let output = probe(&members).unwrap_or_else(|_| {
        members.retain(|(name, member, _)| !NEWER_THAN_SOME.contains(&format!("{name}.{member}").as_str()));
        probe(&members).expect("the members that all headers have")
    });

    let there: BTreeMap<&str, usize> = output
        .lines()
        .map(|line| line.split_once(' ').expect("name and number"))
        .map(|(name, number)| (name, number.parse().expect("a number")))
        .collect();
    // This table grows at its head: the members keep their distance to the end.
    let growth = size_of::<verbs_context>() - there["size"];
    for (name, member, offset) in &members {
        let expected = if name == "verbs_context" {
            offset - growth
        } else {
            *offset
        };
        assert_eq!(
            there[format!("{name}.{member}").as_str()],
            expected,
            "{name}.{member}"
        );
    }
    println!("{} members compared", members.len());
}

/// Constants that the headers of rdma-core 44 do not have yet.
const CONSTANTS_NEWER_THAN_SOME: [&str; 4] = [
    "IBV_WR_FLUSH",
    "IBV_WR_ATOMIC_WRITE",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_QP_EX_WITH_ATOMIC_WRITE",
];

fn values_in_c(with_cm: bool, names: &[&str]) -> Result<String, String> {
    let mut source = format!("{}int main(void) {{\n", includes(with_cm));
    for name in names {
        source.push_str(&format!("printf(\"{name} %lld\\n\", (long long)({name}));\n"));
    }
    source.push_str("return 0; }\n");
    compile_and_run(&source)
}

#[test]
fn every_constant_has_the_value_of_the_installed_headers() {
    if let Err(reason) = compile_and_run("#include <infiniband/verbs.h>\nint main(void) { return 0; }\n") {
        println!(
            "skipped: <infiniband/verbs.h> (package libibverbs-dev) or a C compiler is missing: {reason}"
        );
        return;
    }
    let all: Vec<&str> = CONSTANTS.iter().map(|(name, _)| *name).collect();
    let output = values_in_c(false, &all).unwrap_or_else(|_| {
        let old: Vec<&str> = all
            .iter()
            .copied()
            .filter(|name| !CONSTANTS_NEWER_THAN_SOME.contains(name))
            .collect();
        values_in_c(false, &old).expect("the constants that all headers have")
    });
    let ours: BTreeMap<&str, i64> = CONSTANTS.iter().copied().collect();
    for line in output.lines() {
        let (name, value) = line.split_once(' ').expect("name and number");
        assert_eq!(value.parse(), Ok(ours[name]), "{name}");
    }
    assert!(output.lines().count() + CONSTANTS_NEWER_THAN_SOME.len() >= CONSTANTS.len());
}

#[test]
fn every_constant_of_librdmacm_has_the_value_of_the_installed_headers() {
    if !has_cm_headers() {
        return;
    }
    let ours: BTreeMap<&str, i64> = cm_constants::CONSTANTS.iter().copied().collect();
    let names: Vec<&str> = ours.keys().copied().collect();
    let output = values_in_c(true, &names).expect("all headers have them");
    for line in output.lines() {
        let (name, value) = line.split_once(' ').expect("name and number");
        assert_eq!(value.parse(), Ok(ours[name]), "{name}");
    }
    assert_eq!(output.lines().count(), names.len());
}
