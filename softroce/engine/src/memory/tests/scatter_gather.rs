//! Lists against a model: the same bytes in plain vectors.

use proptest::prelude::*;

use super::*;

const REGIONS: usize = 3;
const BYTES: usize = 300;

/// One entry: region, offset, length. Some reach beyond their region.
type Entry = (usize, usize, usize);

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let inside = (0..REGIONS, 0..BYTES, 0..80usize)
        .prop_map(|(region, offset, length)| (region, offset, length.min(BYTES - offset)));
    let anywhere = (0..REGIONS, 0..BYTES + 4, 0..80usize);
    prop::collection::vec(prop_oneof![9 => inside, 1 => anywhere], 0..9)
}

/// Bytes of the list in order: (region, offset) each.
fn flatten(entries: &[Entry]) -> Vec<(usize, usize)> {
    entries
        .iter()
        .flat_map(|(region, offset, length)| (*offset..offset + length).map(|at| (*region, at)))
        .collect()
}

struct Setting {
    world: World,
    buffers: Vec<Buffer>,
    keys: Vec<LKey>,
}

impl Setting {
    /// Each region begins so many bytes into its buffer: all alignments occur.
    fn new(skews: [usize; REGIONS]) -> Self {
        let mut world = World::new();
        let buffers: Vec<Buffer> = (0..REGIONS)
            .map(|n| {
                let bytes: Vec<u8> = (0..BYTES + 32).map(|at| (at * 7 + n * 101) as u8).collect();
                Buffer::from_bytes(&bytes)
            })
            .collect();
        let keys = (0..REGIONS)
            .map(|n| {
                // SAFETY: within the buffer, which lives as long as the regions.
                let host = unsafe { HostMemory::new(buffers[n].as_ptr().wrapping_add(skews[n]), BYTES) };
                world
                    .register(host, 0x1_0000 * n as u64 + 3, Access::LOCAL_WRITE)
                    .unwrap()
                    .lkey
            })
            .collect();
        Setting { world, buffers, keys }
    }

    fn sges(&self, entries: &[Entry]) -> Vec<Sge> {
        let sge = |&(region, offset, length): &Entry| Sge {
            addr: 0x1_0000 * region as u64 + 3 + offset as u64,
            length: length as u32,
            lkey: self.keys[region],
        };
        entries.iter().map(sge).collect()
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        self.buffers.iter().map(|b| b.to_vec(0..b.len())).collect()
    }
}

proptest! {
    #[test]
    fn gathering_any_part_of_any_list_gives_the_bytes_of_the_model(
        skews in [0..16usize, 0..16usize, 0..16usize],
        entries in entries(),
        offset in 0..200usize,
        length in 0..200usize,
    ) {
        let setting = Setting::new(skews);
        let list = flatten(&entries);
        let bytes = setting.bytes();
        let mut out = vec![0; length];
        let answer = setting.world.memory.gather(setting.world.pd, &setting.sges(&entries), offset as u64, &mut out);
        match list.get(offset..offset + length) {
            Some(part) if part.iter().all(|(_, at)| *at < BYTES) => {
                prop_assert_eq!(answer, Ok(()));
                let expected: Vec<u8> = part.iter().map(|(n, at)| bytes[*n][skews[*n] + at]).collect();
                prop_assert_eq!(out, expected);
            }
            _ if length == 0 => prop_assert_eq!(answer, Ok(())),
            _ => prop_assert_eq!(answer, Err(MemoryFault::OutOfBounds)),
        }
        prop_assert_eq!(setting.bytes(), bytes);
    }

    #[test]
    fn scattering_writes_the_bytes_of_the_model_and_no_other(
        skews in [0..16usize, 0..16usize, 0..16usize],
        entries in entries(),
        offset in 0..200usize,
        length in 0..200usize,
    ) {
        let setting = Setting::new(skews);
        let list = flatten(&entries);
        let mut model = setting.bytes();
        let data: Vec<u8> = (0..length).map(|at| 0x80 | at as u8).collect();
        let answer = setting.world.memory.scatter(setting.world.pd, &setting.sges(&entries), offset as u64, &data);
        let part = list.get(offset.min(list.len())..(offset + length).min(list.len())).unwrap_or_default();
        let is_valid = part.len() == length && part.iter().all(|(_, at)| *at < BYTES);
        prop_assert_eq!(answer.is_ok(), is_valid);
        if is_valid {
            for ((n, at), byte) in part.iter().zip(&data) {
                model[*n][skews[*n] + at] = *byte;
            }
            prop_assert_eq!(setting.bytes(), model);
        } else {
            // Entries before the faulty one are written; never a byte outside of a region.
            for (n, after) in setting.bytes().iter().enumerate() {
                let (start, end) = (skews[n], skews[n] + BYTES);
                prop_assert_eq!(&after[..start], &model[n][..start]);
                prop_assert_eq!(&after[end..], &model[n][end..]);
            }
        }
    }
}
