//! What the library itself costs: planning, and a small warm read beside the bare system call.

use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use criterion::{Criterion, criterion_group, criterion_main};
use gpumap::{Mmap, ReadOptions, Route, residency};

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
    let rows: Vec<Range<u64>> = (0..1_000_000u64)
        .map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (4 * GIB - 512))
        .map(|at| at..at + 512)
        .collect();
    c.bench_function("plan/1M-rows", |b| {
        b.iter(|| {
            map.plan_gather(black_box(&rows), ReadOptions::new())
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

criterion_group!(benches, planning, small_reads, residency_totals);
criterion_main!(benches);
