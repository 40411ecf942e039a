//! Captures of a run: one file that all its processes write to, or the last packets of each, put together afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use roce_wire::frame;
use roce_wire::pcap::{Direction, LinkType, NgWriter, Reader};
use softroce::journal::Place;

/// Packets of all processes that are put together, bytes. The files of those that wrote last go first.
const TOGETHER_MAX: usize = 256 << 20;
/// Packets that are looked at to find one.
const LOOKED_AT_MAX: u64 = 4 << 20;

/// The absolute path of a capture file, which can be written to.
pub(super) fn writable(file: &Path) -> Result<PathBuf> {
    // A named pipe is opened once only, by the program: its reader takes a second opening for the end.
    if file.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return Ok(file.canonicalize()?);
    }
    open(file)?;
    Ok(file.canonicalize()?)
}

fn open(file: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("the capture {} cannot be written", file.display()))
}

/// Empty the file for this run, unless another one records there, and keep it so while this lives: the processes of the
/// run add to it.
pub(super) fn hold(file: &Path) -> Result<Option<File>> {
    if file.metadata().is_ok_and(|meta| !meta.file_type().is_file()) {
        return Ok(None);
    }
    let held = open(file)?;
    if held.try_lock().is_ok() {
        held.set_len(0)?;
    }
    let _ = held.lock_shared();
    Ok(Some(held))
}

/// Put the captures in `directory` together in one file, in the order of time; how many packets of how many processes.
/// Nothing is written when there are none.
pub(super) fn put_together(directory: &Path, file: &Path) -> Result<Option<(usize, usize)>> {
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = fs::read_dir(directory)?
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|kind| kind == "pcapng"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    found.sort();
    let mut packets: Vec<(u64, Option<Direction>, Vec<u8>)> = Vec::new();
    let mut processes = Vec::new();
    let mut bytes = 0;
    for (_, path) in found.iter().rev() {
        let Ok(mut reader) = File::open(path)
            .map(BufReader::new)
            .map_err(Into::into)
            .and_then(Reader::new)
        else {
            continue;
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        processes.push(name.split('-').next().unwrap_or_default().to_owned());
        // The end of a file may be missing, where a process was killed.
        while let Ok(Some(record)) = reader.next_record() {
            if bytes > TOGETHER_MAX {
                break;
            }
            bytes += record.data.len();
            let time = record.timestamp_ns.unwrap_or(0);
            packets.push((time, record.direction, record.data.to_vec()));
        }
    }
    if packets.is_empty() {
        return Ok(None);
    }
    packets.sort_by_key(|(time, _, _)| *time);
    processes.sort();
    processes.dedup();
    let out =
        File::create(file).with_context(|| format!("the capture {} cannot be written", file.display()))?;
    let mut writer = NgWriter::new(BufWriter::new(out), LinkType::RawIp)?;
    for (time, direction, data) in &packets {
        writer.write_directed(*time, data, *direction, None)?;
    }
    writer.flush()?;
    Ok(Some((packets.len(), processes.len())))
}

/// The numbers in a capture of the last packets at these places, counted from 1 as Wireshark does.
pub(super) fn find(file: &Path, places: &[Option<Place>]) -> Vec<Option<u64>> {
    let mut found = vec![None; places.len()];
    let Ok(mut reader) = File::open(file)
        .map(BufReader::new)
        .map_err(Into::into)
        .and_then(Reader::new)
    else {
        return found;
    };
    let mut number = 0;
    while let Ok(Some(record)) = reader.next_record() {
        number += 1;
        if number > LOOKED_AT_MAX {
            break;
        }
        let Ok(frame) = frame::parse_ip(record.data) else {
            continue;
        };
        let Ok(packet) = frame.packet() else { continue };
        let bth = packet.headers.bth;
        for (place, found) in places.iter().zip(&mut found) {
            if let Some(place) = place
                && (place.dest_qpn, place.psn) == (bth.dest_qp.value(), bth.psn.value())
                && place.dst.is_none_or(|dst| dst == frame.ip.dst())
            {
                *found = Some(number);
            }
        }
    }
    found
}
