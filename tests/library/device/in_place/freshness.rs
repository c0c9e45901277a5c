//! What is registered is used only while the file is what it was: bytes are never older than those of pread.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use gpumap::{Device, Error, Mmap, ReadOptions, Reason, Runtime};
use nix::fcntl::{FallocateFlags, fallocate};

use super::super::on_a_device;
use super::{ENGINES, by, landed, read};
use crate::child::this_test;
use crate::scene::{MIB, PAGE, noise, pread, runtime};

const LEN: u64 = MIB + 77;

/// A file of its own, and a map of it that is registered whole.
struct Kept {
    rt: Runtime,
    gpu: Device,
    map: Mmap,
    file: File,
    path: std::path::PathBuf,
}

impl Kept {
    fn new(beside: &Path) -> Self {
        let path = beside.with_extension("kept");
        std::fs::write(&path, noise(1, LEN)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let rt = runtime(&[("GPUMAP_CHUNK", "256KiB")]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        map.register(&gpu, ..).unwrap();
        Self {
            rt,
            gpu,
            map,
            file,
            path,
        }
    }

    fn ways() -> impl Iterator<Item = ReadOptions> {
        ENGINES.map(by).into_iter().chain([ReadOptions::new()])
    }

    /// Every way gives what pread of the mapped file gives, of the whole file and of rows.
    #[track_caller]
    fn is_fresh(&self, what: &str) {
        let mut expected = vec![0; LEN as usize];
        self.file.read_exact_at(&mut expected, 0).unwrap();
        for options in Self::ways() {
            let context = format!("{what}, {options:?}");
            let bytes = read(&self.gpu, &self.map, 0..LEN, options).unwrap();
            assert!(bytes == expected, "{context}");
            self.rows_are_fresh(&expected, options, &context);
        }
    }

    fn rows_are_fresh(&self, expected: &[u8], options: ReadOptions, context: &str) {
        let rows = [5..5_000, 200_000..600_001, 0..9, LEN - 3..LEN, 4_000..4_100];
        let packed: Vec<u8> = rows
            .iter()
            .flat_map(|row| &expected[row.start as usize..row.end as usize])
            .copied()
            .collect();
        let gathered = landed(&self.gpu, packed.len() as u64, |into| {
            self.map.gather_with(&rows, into, options)
        });
        assert!(gathered.unwrap().0 == packed, "{context}: rows");
    }

    fn rewrite(&self, seed: u64) {
        self.file.set_len(0).unwrap();
        self.file.write_all_at(&noise(seed, LEN), 0).unwrap();
    }
}

fn after(test: &str, change: impl FnOnce(&Kept)) {
    on_a_device(test, |_, path| {
        let kept = Kept::new(path);
        let whole = LEN.next_multiple_of(PAGE);
        assert_eq!(kept.rt.registered_bytes(), whole);
        kept.is_fresh("before");
        change(&kept);
        kept.is_fresh("after");
        kept.is_fresh("once more");
        assert_eq!(kept.rt.registered_bytes(), whole);
    });
}

#[test]
fn writes_in_place_are_seen() {
    after(this_test!(), |kept| {
        kept.file.write_all_at(&noise(9, 10_000), 3_000).unwrap();
        kept.file.write_all_at(b"end", LEN - 3).unwrap();
    });
}

#[test]
fn a_file_cut_and_written_anew_is_seen() {
    after(this_test!(), |kept| kept.rewrite(2));
}

#[test]
fn a_hole_is_seen() {
    after(this_test!(), |kept| {
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&kept.file, punch, 4_096, 300_000).unwrap();
    });
}

#[test]
fn writes_past_the_page_cache_are_seen() {
    after(this_test!(), |kept| {
        let direct = File::options()
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&kept.path)
            .unwrap();
        let room = noise(5, 3 * PAGE);
        let skip = room.as_ptr().align_offset(PAGE as usize);
        let block = &room[skip..skip + PAGE as usize];
        direct.write_all_at(block, 2 * PAGE).unwrap();
    });
}

/// The map keeps the file that it was made of.
#[test]
fn what_was_registered_serves_no_more_after_a_change_until_it_is_registered_again() {
    on_a_device(this_test!(), |_, path| {
        let kept = Kept::new(path);
        let unregistered = || {
            let read = landed(&kept.gpu, LEN, |into| kept.map.read(.., into));
            read.unwrap().1.not_in_place == Some(Reason::NotRegistered)
        };
        assert!(!unregistered());
        kept.rewrite(2);
        assert!(unregistered() && unregistered());
        kept.map.register(&kept.gpu, ..).unwrap();
        assert!(!unregistered());
    });
}

#[test]
fn another_file_of_the_same_name_is_another() {
    after(this_test!(), |kept| {
        let other = kept.path.with_extension("other");
        std::fs::write(&other, noise(3, LEN)).unwrap();
        std::fs::rename(&other, &kept.path).unwrap();
        assert!(pread(&kept.path, 0, LEN) == noise(3, LEN));
    });
}

/// Times of files do not tell apart what happens within a tick of their clock.
#[test]
fn changes_within_a_tick_of_the_clock_are_seen() {
    on_a_device(this_test!(), |_, path| {
        let kept = Kept::new(path);
        for round in 2..40 {
            kept.rewrite(round);
            let options = Kept::ways().nth(round as usize % 3).unwrap();
            for again in 0..2 {
                let bytes = read(&kept.gpu, &kept.map, 0..LEN, options).unwrap();
                assert!(bytes == noise(round, LEN), "{round}, {again}");
            }
            kept.rewrite(round + 1000);
            let expected = noise(round + 1000, LEN);
            kept.rows_are_fresh(&expected, options, &format!("{round}"));
        }
    });
}

/// What was cut off is an error; what is left is read by every way.
#[test]
fn a_file_that_shrank_is_told_and_what_is_left_is_read() {
    on_a_device(this_test!(), |_, path| {
        for left in [1, 4 * PAGE, 300_000] {
            let kept = Kept::new(path);
            kept.file.set_len(left).unwrap();
            for options in Kept::ways() {
                for range in [0..LEN, left - 1..left + 1, left..left + 1, LEN - 1..LEN] {
                    let error = read(&kept.gpu, &kept.map, range.clone(), options).unwrap_err();
                    let told = matches!(error, Error::Truncated { .. });
                    assert!(told, "{left}, {range:?}, {options:?}: {error}");
                }
                for range in [0..left, left - 1..left] {
                    let bytes = read(&kept.gpu, &kept.map, range.clone(), options).unwrap();
                    let len = range.end - range.start;
                    assert!(bytes == pread(&kept.path, range.start, len));
                }
            }
        }
    });
}

/// Rows of which none is cut off are gathered, by whoever looks them up.
#[test]
fn rows_by_number_of_a_file_that_shrank() {
    on_a_device(this_test!(), |_, path| {
        let kept = Kept::new(path);
        let numbers = kept.path.with_extension("numbers");
        std::fs::write(&numbers, bytemuck::cast_slice::<u32, u8>(&[7, 0, 7])).unwrap();
        let mut there = kept.gpu.alloc(12).unwrap();
        kept.rt
            .open(&numbers)
            .unwrap()
            .read(.., &mut there)
            .unwrap();
        let numbers = gpumap::DeviceIndices::of_u32(&there).unwrap();
        kept.file.set_len(8 * 1_000).unwrap();
        let gather = |options| {
            landed(&kept.gpu, 3_000, |into| {
                kept.map.gather_rows_with(numbers, 1_000, into, options)
            })
        };
        let expected = [7_000, 0, 7_000]
            .map(|at| pread(&kept.path, at, 1_000))
            .concat();
        for options in Kept::ways() {
            assert!(gather(options).unwrap().0 == expected, "{options:?}");
        }
        kept.file.set_len(8 * 1_000 - 1).unwrap();
        for options in Kept::ways() {
            let error = gather(options).unwrap_err();
            let told = matches!(error, Error::Truncated { row: Some(0), .. });
            assert!(told, "{options:?}: {error}");
        }
    });
}
