//! What the library itself costs: planning, and a small warm read beside the bare system call.

#![expect(clippy::print_stderr, reason = "a bench that cannot be taken says so")]

use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use criterion::{Criterion, criterion_group, criterion_main};
use gpumap::{Memory, Mmap, ReadOptions, Route, evict, residency};

const GIB: u64 = 1 << 30;

/// A sparse file: planning does no I/O.
fn sparse(len: u64) -> (tempfile::NamedTempFile, Mmap) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(len).expect("set_len");
    let map = Mmap::open(file.path()).expect("open");
    (file, map)
}

fn planning(c: &mut Criterion) {
    let (_file, map) = sparse(4 * GIB);
    c.bench_function("plan/4KiB", |b| {
        b.iter(|| {
            map.plan(black_box(8192..12288), ReadOptions::new())
                .expect("a plan")
        });
    });
    c.bench_function("plan/4GiB", |b| {
        b.iter(|| map.plan(black_box(..), ReadOptions::new()).expect("a plan"));
    });
    let named = ReadOptions::new().route(Route::Buffered);
    for (count, name) in [(1_000_000, "1M"), (10_000_000, "10M")] {
        let rows = rows(count);
        for (options, how) in [(ReadOptions::new(), "rows"), (named, "rows-named")] {
            c.bench_function(&format!("plan/{name}-{how}"), |b| {
                b.iter(|| map.plan_gather(black_box(&rows), options).expect("a plan"));
            });
        }
    }
}

/// Of 512 bytes, anywhere in 4 GiB.
fn rows(count: u64) -> Vec<Range<u64>> {
    (0..count)
        .map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (4 * GIB - 512))
        .map(|at| at..at + 512)
        .collect()
}

/// Every other 64 MiB is resident; the file is sparse, and its pages are memory all the same. Ordinary reads leave large
/// folios, those that expect random ones leave folios of a page: as many as the kernel counts one by one.
fn planning_of_both_halves(c: &mut Criterion) {
    use nix::fcntl::PosixFadviseAdvice::{POSIX_FADV_NORMAL, POSIX_FADV_RANDOM};
    const STRETCH: usize = 64 << 20;
    let (file, map) = sparse(4 * GIB);
    let reader = File::open(file.path()).expect("open");
    let mut bytes = vec![0; STRETCH];
    for (advice, how) in [
        (POSIX_FADV_NORMAL, "mixed"),
        (POSIX_FADV_RANDOM, "mixed-small-folios"),
    ] {
        evict::file(file.path()).expect("evict");
        nix::fcntl::posix_fadvise(&reader, 0, 0, advice).expect("posix_fadvise");
        for at in (0..4 * GIB).step_by(2 * STRETCH) {
            for part in 0..64 {
                let (from, to) = (part << 20, (part + 1) << 20);
                let place = at + from as u64;
                reader
                    .read_exact_at(&mut bytes[from..to], place)
                    .expect("pread");
            }
        }
        let plan = map.plan(.., ReadOptions::new()).expect("a plan");
        let taken = Route::ALL
            .into_iter()
            .filter(|route| plan.reason(*route).is_none());
        if taken.count() < 2 {
            eprintln!(
                "plan/4GiB-{how}: not measured: one route serves all, by this folder's file system"
            );
            continue;
        }
        c.bench_function(&format!("plan/4GiB-{how}"), |b| {
            b.iter(|| map.plan(black_box(..), ReadOptions::new()).expect("a plan"));
        });
    }
    let rows = rows(10_000_000);
    c.bench_function("plan/10M-rows-mixed", |b| {
        b.iter(|| {
            map.plan_gather(black_box(&rows), ReadOptions::new())
                .expect("a plan")
        });
    });
}

fn planning_for_a_device(c: &mut Criterion) {
    let (_file, map) = sparse(4 * GIB);
    let to = Memory::Device(0);
    if let Err(error) = map.plan_to(to, 8192..12288, ReadOptions::new()) {
        eprintln!("plan/4KiB-to-device: not measured: {error}");
        return;
    }
    c.bench_function("plan/4KiB-to-device", |b| {
        b.iter(|| {
            map.plan_to(to, black_box(8192..12288), ReadOptions::new())
                .expect("a plan")
        });
    });
}

fn small_reads(c: &mut Criterion) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), vec![7u8; 1 << 20]).expect("write");
    let map = Mmap::open(file.path()).expect("open");
    let plain = File::open(file.path()).expect("open");
    let mut bytes = [0u8; 4096];
    c.bench_function("read/4KiB-warm-bare-pread", |b| {
        b.iter(|| {
            plain
                .read_exact_at(black_box(&mut bytes), 8192)
                .expect("pread");
        });
    });
    c.bench_function("read/4KiB-warm-buffered", |b| {
        b.iter(|| map.read(black_box(8192..12288), &mut bytes).expect("read"));
    });
    let mapped = ReadOptions::new().route(Route::Mapped);
    c.bench_function("read/4KiB-warm-mapped", |b| {
        b.iter(|| {
            map.read_with(black_box(8192..12288), &mut bytes, mapped)
                .expect("read")
        });
    });
    assert_eq!(bytes, [7; 4096]);
}

fn residency_totals(c: &mut Criterion) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), vec![7u8; 16 << 20]).expect("write");
    c.bench_function("residency/16MiB", |b| {
        b.iter(|| residency::of(black_box(file.path())).expect("residency"));
    });
    c.bench_function("residency/16MiB-settled", |b| {
        b.iter(|| residency::settled(black_box(file.path())).expect("residency"));
    });
}

criterion_group!(
    benches,
    planning,
    planning_of_both_halves,
    planning_for_a_device,
    small_reads,
    residency_totals
);
criterion_main!(benches);
