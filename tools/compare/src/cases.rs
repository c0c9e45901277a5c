//! The cases, each with its peer and what it is to reach.

use std::path::Path;

use gpumap::{Engine, Route};

use crate::cache;
use crate::device;
use crate::half::{self, Half};
use crate::host;
use crate::in_place::{self, Cached, Told};
use crate::kvikio;
use crate::model::{self, Peer, State};
use crate::pairs::{Series, Target};
use crate::scene::Scene;
use crate::storage;
use crate::warming;

/// One comparison.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) peer: &'static str,
    pub(crate) target: Target,
    pub(crate) run: fn(&Scene, usize, &Path) -> Result<Series, String>,
}

/// The limit of the link to a device.
const LINK: &str = "pinned copies of 256 MiB, as many bytes";

/// Every comparison.
pub(crate) static ALL: &[Case] = &[
    Case {
        name: "warm-in-order-whole-1",
        what: "1 GiB warm, in order, 1 MiB blocks, 1 worker, into a destination of 1 GiB",
        peer: "pread loop",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| host::in_order(scene, pairs, false),
    },
    Case {
        name: "warm-in-order-reused-1",
        what: "1 GiB warm, in order, 1 MiB blocks, 1 worker, into one block of memory, reused",
        peer: "pread loop",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| host::in_order(scene, pairs, true),
    },
    Case {
        name: "warm-in-order-whole-2",
        what: "1 GiB warm, in order, 1 MiB blocks, 2 workers on one read, into a destination of 1 GiB",
        peer: "pread loops, 2 threads",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| host::whole_by_two(scene, pairs),
    },
    Case {
        name: "warm-in-order-2-readers",
        what: "4 × 1 GiB warm, in order, 1 MiB blocks, 2 threads that read, each into one block of memory, reused",
        peer: "fio psync, 2 jobs",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| host::two_readers(scene, pairs),
    },
    Case {
        name: "warm-in-order-2-windows",
        what: "4 × 1 GiB warm, in order, 1 MiB blocks, 2 workers on reads of 8 MiB into the same 8 MiB of memory",
        peer: "fio psync, 2 jobs",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| host::two_workers(scene, pairs),
    },
    Case {
        name: "small-read",
        what: "4 KiB warm, 200000 times (the target is 1.5 µs for each)",
        peer: "bare pread",
        target: Target::Extra(host::READS as f64 * 1.5e-6),
        run: |scene, pairs, _| host::small_read(scene, pairs),
    },
    Case {
        name: "rows-million",
        what: "1 million random rows of 512 bytes, warm, 1 worker: planned and read",
        peer: "bare pread",
        target: Target::Ratio(1.0 / 1.5),
        run: |scene, pairs, _| host::million_rows(scene, pairs),
    },
    Case {
        name: "direct-random",
        what: "16384 random rows of 4 KiB of a cold file of 4 GiB, 1 worker, route direct",
        peer: "fio io_uring, O_DIRECT, depth 128, same offsets",
        target: Target::Ratio(0.95),
        run: |scene, pairs, _| storage::random(scene, pairs),
    },
    Case {
        name: "direct-in-order",
        what: "1 GiB cold, in order, 1 worker, route direct, into memory aligned to a page",
        peer: "fio io_uring, O_DIRECT, best of 25 configurations",
        target: Target::Ratio(0.95),
        run: |scene, pairs, _| storage::in_order(scene, pairs, true),
    },
    Case {
        name: "direct-in-order-vec",
        what: "1 GiB cold, in order, 1 worker, route direct, into memory as malloc gives it",
        peer: "fio io_uring, O_DIRECT, best of 25 configurations",
        target: Target::Ratio(0.95),
        run: |scene, pairs, _| storage::in_order(scene, pairs, false),
    },
    Case {
        name: "warm-pread-loop",
        what: "1 GiB cold, read into the page cache, verified",
        peer: "pread loop",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| warming::beside_pread(scene, pairs),
    },
    Case {
        name: "warm-vmtouch",
        what: "the whole process: 1 GiB cold, read into the page cache",
        peer: "vmtouch -t",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| warming::beside_vmtouch(scene, pairs, cachectl),
    },
    Case {
        name: "device-direct-random",
        what: "16384 random rows of 4 KiB of a cold file of 4 GiB, 1 worker, route direct, into device memory",
        peer: "fio io_uring, O_DIRECT, depth 128, same offsets, to host memory",
        target: Target::Ratio(0.9),
        run: |scene, pairs, _| storage::random_to_device(scene, pairs, 1),
    },
    Case {
        name: "device-direct-in-order",
        what: "1 GiB cold, in order, 4 workers, route direct, into device memory",
        peer: "fio io_uring, O_DIRECT, best of 25 configurations, to host memory",
        target: Target::Ratio(0.95),
        run: |scene, pairs, _| storage::in_order_to_device(scene, pairs, 4),
    },
    Case {
        name: "device-warm-buffered-8",
        what: "2 GiB warm, in order, 8 workers, route buffered, into device memory",
        peer: LINK,
        target: Target::Ratio(0.88),
        run: |scene, pairs, _| device::in_order(scene, pairs, Route::Buffered, 8),
    },
    Case {
        name: "device-warm-buffered-16",
        what: "2 GiB warm, in order, 16 workers, route buffered, into device memory",
        peer: LINK,
        target: Target::Ratio(0.92),
        run: |scene, pairs, _| device::in_order(scene, pairs, Route::Buffered, 16),
    },
    Case {
        name: "device-warm-mapped-8",
        what: "2 GiB warm, in order, 8 workers, route mapped, into device memory",
        peer: LINK,
        target: Target::Ratio(0.88),
        run: |scene, pairs, _| device::in_order(scene, pairs, Route::Mapped, 8),
    },
    Case {
        name: "device-warm-mapped-16",
        what: "2 GiB warm, in order, 16 workers, route mapped, into device memory",
        peer: LINK,
        target: Target::Ratio(0.92),
        run: |scene, pairs, _| device::in_order(scene, pairs, Route::Mapped, 16),
    },
    Case {
        name: "kvikio-warm-1",
        what: "2 GiB warm, in order, 1 thread, no route named, mapped anew each time, into device memory",
        peer: "KvikIO, best of 5 configurations, 1 thread",
        target: Target::Ratio(6.00),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 1, false),
    },
    Case {
        name: "kvikio-kept-1",
        what: "2 GiB warm, in order, 1 thread, no route named, pages kept registered, into device memory",
        peer: "KvikIO, best of 5 configurations, 1 thread",
        target: Target::Ratio(1.20),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 1, true),
    },
    Case {
        name: "kvikio-warm-4",
        what: "2 GiB warm, in order, 4 threads, no route named, mapped anew each time, into device memory",
        peer: "KvikIO, best of 5 configurations, 4 threads",
        target: Target::Ratio(1.20),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 4, false),
    },
    Case {
        name: "kvikio-kept-4",
        what: "2 GiB warm, in order, 4 threads, no route named, pages kept registered, into device memory",
        peer: "KvikIO, best of 5 configurations, 4 threads",
        target: Target::Ratio(1.20),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 4, true),
    },
    Case {
        name: "kvikio-warm-8",
        what: "2 GiB warm, in order, 8 threads, no route named, mapped anew each time, into device memory",
        peer: "KvikIO, best of 5 configurations, 8 threads",
        target: Target::Ratio(1.15),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 8, false),
    },
    Case {
        name: "kvikio-kept-8",
        what: "2 GiB warm, in order, 8 threads, no route named, pages kept registered, into device memory",
        peer: "KvikIO, best of 5 configurations, 8 threads",
        target: Target::Ratio(1.15),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 8, true),
    },
    Case {
        name: "kvikio-warm-16",
        what: "2 GiB warm, in order, 16 threads, no route named, mapped anew each time, into device memory",
        peer: "KvikIO, best of 5 configurations, 16 threads",
        target: Target::Ratio(1.10),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 16, false),
    },
    Case {
        name: "kvikio-kept-16",
        what: "2 GiB warm, in order, 16 threads, no route named, pages kept registered, into device memory",
        peer: "KvikIO, best of 5 configurations, 16 threads",
        target: Target::Ratio(1.10),
        run: |scene, pairs, _| in_place::in_order_beside_kvikio(scene, pairs, 16, true),
    },
    Case {
        name: "device-warm-random",
        what: "16384 random rows of 4 KiB of a cached file of 4 GiB, 16 workers, route buffered, into device memory",
        peer: "16 threads, pread of each row into pinned memory, one copy",
        // 2.8 of 3.5 million rows a second.
        target: Target::Ratio(0.8),
        run: |scene, pairs, _| device::random(scene, pairs, 16),
    },
    Case {
        name: "kvikio-cold-in-order",
        what: "2 GiB cold, in order, 4 or 16 workers, route direct, into device memory",
        peer: "KvikIO, best of 10 configurations",
        target: Target::Ratio(1.20),
        run: |scene, pairs, _| kvikio::cold_in_order(scene, pairs),
    },
    Case {
        name: "kvikio-cold-cufile",
        what: "2 GiB cold, in order, 4, 8 or 16 workers, route gds, into device memory",
        peer: "KvikIO by cuFile, best of 4, 8 and 16 threads",
        target: Target::Ratio(0.95),
        run: |scene, pairs, _| kvikio::cold_by_cufile(scene, pairs),
    },
    Case {
        name: "kvikio-cold-random",
        what: "16384 random rows of 4 KiB of a cold file of 4 GiB, 1 worker, route direct, into device memory",
        peer: "KvikIO's CuFile, best of 16 configurations",
        target: Target::Ratio(1.50),
        run: |scene, pairs, _| kvikio::cold_random(scene, pairs),
    },
    Case {
        name: "kvikio-cold-random-mmap",
        what: "16384 random rows of 4 KiB of a cold file of 4 GiB, 1 worker, route direct, into device memory",
        peer: "KvikIO's Mmap, best of 8 and 16 threads, with a read-ahead of 128 KiB",
        target: Target::Ratio(12.0),
        run: |scene, pairs, _| kvikio::cold_random_mapped(scene, pairs),
    },
    Case {
        name: "kvikio-warm-random",
        what: "16384 random rows of 4 KiB of a cached file of 4 GiB, 16 workers, route buffered, into device memory",
        peer: "KvikIO, best of 20 configurations",
        target: Target::Ratio(18.0),
        run: |scene, pairs, _| kvikio::warm_random(scene, pairs, 16),
    },
    Case {
        name: "kvikio-warm-one",
        what: "2000 cached rows of 4 KiB, one read after another, into device memory",
        peer: "KvikIO's Mmap.read",
        target: Target::Ratio(1.0),
        run: |scene, pairs, _| kvikio::one_by_one(scene, pairs),
    },
    Case {
        name: "in-place-fresh-1",
        what: "4 GiB warm, in order, 1 worker, mapped by dma, nothing registered before, into device memory",
        peer: LINK,
        target: Target::Ratio(0.72),
        run: |scene, pairs, _| in_place::fresh(scene, pairs, 1, Some(Engine::Dma), Cached::InOrder),
    },
    Case {
        name: "in-place-registering",
        what: "4 GiB warm, registered with a device, nothing read, which a first read by one worker cannot be faster than",
        peer: LINK,
        target: Target::Ratio(0.72),
        run: |scene, pairs, _| in_place::registering(scene, pairs),
    },
    Case {
        name: "in-place-kept-1",
        what: "4 GiB warm, in order, 1 worker, mapped by dma, pages kept registered, into device memory",
        peer: LINK,
        target: Target::Ratio(0.98),
        run: |scene, pairs, _| in_place::kept(scene, pairs),
    },
    Case {
        name: "in-place-auto-1",
        what: "4 GiB warm, in order, 1 worker, no route named, nothing registered before, into device memory",
        peer: LINK,
        target: Target::Ratio(0.72),
        run: |scene, pairs, _| in_place::fresh(scene, pairs, 1, None, Cached::InOrder),
    },
    Case {
        name: "in-place-auto-4",
        what: "4 GiB warm, in order, 4 workers, no route named, nothing registered before, into device memory",
        peer: LINK,
        target: Target::Ratio(0.90),
        run: |scene, pairs, _| in_place::fresh(scene, pairs, 4, None, Cached::InOrder),
    },
    Case {
        name: "in-place-auto-8",
        what: "4 GiB warm, in order, 8 workers, no route named, nothing registered before, into device memory",
        peer: LINK,
        target: Target::Ratio(0.90),
        run: |scene, pairs, _| in_place::fresh(scene, pairs, 8, None, Cached::InOrder),
    },
    Case {
        name: "in-place-auto-16",
        what: "4 GiB warm, in order, 16 workers, no route named, nothing registered before, into device memory",
        peer: LINK,
        target: Target::Ratio(0.90),
        run: |scene, pairs, _| in_place::fresh(scene, pairs, 16, None, Cached::InOrder),
    },
    Case {
        name: "in-place-rows-4096",
        what: "262144 random rows of 4 KiB by ranges, pages kept registered, into device memory",
        peer: LINK,
        // 10 million rows a second.
        target: Target::Most(262144.0 / 10.0e6),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::Ranges, (262144, 4096), 0),
    },
    Case {
        name: "in-place-rows-65536",
        what: "32768 random rows of 64 KiB by ranges, pages kept registered, into device memory",
        peer: LINK,
        target: Target::Ratio(0.90),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::Ranges, (32768, 65536), 0),
    },
    Case {
        name: "in-place-rows-512",
        what: "1048576 random rows of 512 bytes by ranges, pages kept registered, into device memory",
        peer: LINK,
        // 50 million rows a second.
        target: Target::Most(1048576.0 / 50.0e6),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::Ranges, (1048576, 512), 0),
    },
    Case {
        name: "in-place-numbers-512",
        what: "1048576 random rows of 512 bytes by numbers, pages kept registered, into device memory",
        peer: LINK,
        // 50 million rows a second.
        target: Target::Most(1048576.0 / 50.0e6),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::Numbers, (1048576, 512), 0),
    },
    Case {
        name: "in-place-there-4096",
        what: "262144 random rows of 4 KiB by numbers on the device, pages kept registered, into device memory",
        peer: LINK,
        // 11.5 million rows a second: what the kernel alone is to reach.
        target: Target::Most(262144.0 / 11.5e6),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::NumbersThere, (262144, 4096), 0),
    },
    Case {
        name: "in-place-there-512",
        what: "1048576 random rows of 512 bytes by numbers on the device, pages kept registered, into device memory",
        peer: LINK,
        // 90 million rows a second: what the kernel alone is to reach.
        target: Target::Most(1048576.0 / 90.0e6),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::NumbersThere, (1048576, 512), 0),
    },
    Case {
        name: "in-place-there-128",
        what: "1048576 random rows of 128 bytes by numbers on the device, pages kept registered, into device memory",
        peer: LINK,
        // 330 million rows a second: what the kernel alone is to reach.
        target: Target::Most(1048576.0 / 330.0e6),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::NumbersThere, (1048576, 128), 0),
    },
    Case {
        name: "in-place-there-353",
        what: "1048576 random rows of 353 bytes at odd offsets by numbers on the device, pages kept registered, into device memory",
        peer: LINK,
        // 0.8 of the 0.93 that rows of 512 and 4096 bytes reach.
        target: Target::Ratio(0.74),
        run: |scene, pairs, _| in_place::rows(scene, pairs, Told::NumbersThere, (1048576, 353), 17),
    },
    Case {
        name: "in-place-there-1412",
        what: "1048576 random rows of 1412 bytes at odd offsets by numbers on the device, pages kept registered, into device memory",
        peer: LINK,
        // 0.8 of the 0.93 that rows of 512 and 4096 bytes reach.
        target: Target::Ratio(0.74),
        run: |scene, pairs, _| {
            in_place::rows(scene, pairs, Told::NumbersThere, (1048576, 1412), 17)
        },
    },
    Case {
        name: "in-place-few-rows",
        what: "16 random rows of 4 KiB by ranges, 1000 times, pages kept registered, into device memory",
        peer: "1000 pinned copies of 64 KiB, each waited for",
        // 40 microseconds each.
        target: Target::Most(0.040),
        run: |scene, pairs, _| in_place::few_rows(scene, pairs),
    },
    Case {
        name: "kvikio-kept-random",
        what: "262144 random rows of 4 KiB of a cached file of 4 GiB, pages kept registered, into device memory",
        peer: "KvikIO, best of 3 configurations",
        target: Target::Ratio(60.0),
        run: |scene, pairs, _| in_place::rows_beside_kvikio(scene, pairs),
    },
    Case {
        name: "in-place-fresh-small-folios-1",
        what: "4 GiB cached by random reads, in order, 1 worker, mapped by dma, nothing registered before, into device memory",
        peer: LINK,
        // Small folios: what registering them gives.
        target: Target::Ratio(0.15),
        run: |scene, pairs, _| {
            in_place::fresh(scene, pairs, 1, Some(Engine::Dma), Cached::AtRandom)
        },
    },
    Case {
        name: "model-cold-safetensors",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, cold, cachectl load, into device memory",
        peer: "safetensors' own loader, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Cold, Peer::Safetensors)
        },
    },
    Case {
        name: "model-cold-fastsafetensors",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, cold, cachectl load, into device memory",
        peer: "fastsafetensors, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Cold, Peer::Fastsafetensors)
        },
    },
    Case {
        name: "model-cold-instanttensor",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, cold, cachectl load, into device memory",
        peer: "InstantTensor, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Cold, Peer::InstantTensor)
        },
    },
    Case {
        name: "model-cold-runai",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, cold, cachectl load, into device memory",
        peer: "Run:ai Model Streamer, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Cold, Peer::Runai)
        },
    },
    Case {
        name: "model-warm-safetensors",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, warm, cachectl load, into device memory",
        peer: "safetensors' own loader, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Warm, Peer::Safetensors)
        },
    },
    Case {
        name: "model-warm-fastsafetensors",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, warm, cachectl load, into device memory",
        peer: "fastsafetensors, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Warm, Peer::Fastsafetensors)
        },
    },
    Case {
        name: "model-warm-instanttensor",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, warm, cachectl load, into device memory",
        peer: "InstantTensor, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Warm, Peer::InstantTensor)
        },
    },
    Case {
        name: "model-warm-runai",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, warm, cachectl load, into device memory",
        peer: "Run:ai Model Streamer, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Warm, Peer::Runai)
        },
    },
    Case {
        name: "model-half-safetensors",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, every other 64 MiB cached, cachectl load, into device memory",
        peer: "safetensors' own loader, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Half, Peer::Safetensors)
        },
    },
    Case {
        name: "model-half-fastsafetensors",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, every other 64 MiB cached, cachectl load, into device memory",
        peer: "fastsafetensors, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Half, Peer::Fastsafetensors)
        },
    },
    Case {
        name: "model-half-instanttensor",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, every other 64 MiB cached, cachectl load, into device memory",
        peer: "InstantTensor, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Half, Peer::InstantTensor)
        },
    },
    Case {
        name: "model-half-runai",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, every other 64 MiB cached, cachectl load, into device memory",
        peer: "Run:ai Model Streamer, best of 5 configurations",
        target: Target::Ratio(1.0),
        run: |scene, pairs, cachectl| {
            model::beside(scene, pairs, cachectl, State::Half, Peer::Runai)
        },
    },
    Case {
        name: "model-warm-link",
        what: "a model of 190 tensors in 4 files, 4.6 GiB, warm, cachectl load, into device memory",
        peer: LINK,
        target: Target::Ratio(0.85),
        run: |scene, pairs, cachectl| model::beside_link(scene, pairs, cachectl),
    },
    Case {
        name: "device-pinned-64",
        what: "2 GiB warm, in order, 16 workers, route buffered, GPUMAP_PINNED as it is unasked (128 MiB), into device memory",
        peer: "the same with 64 MiB",
        target: Target::Ratio(0.97),
        run: |scene, pairs, _| device::pinned_bound(scene, pairs, "64MiB"),
    },
    Case {
        name: "device-pinned-256",
        what: "2 GiB warm, in order, 16 workers, route buffered, GPUMAP_PINNED as it is unasked (128 MiB), into device memory",
        peer: "the same with 256 MiB",
        target: Target::Ratio(0.97),
        run: |scene, pairs, _| device::pinned_bound(scene, pairs, "256MiB"),
    },
    Case {
        name: "half-first",
        what: "4 GiB in order, the first half cached, no route named, into device memory",
        peer: "the absent half alone, cold, no route named",
        target: Target::Ratio(1.0 / 1.1),
        run: |scene, pairs, _| half::in_order(scene, pairs, Half::First),
    },
    Case {
        name: "half-alternating",
        what: "4 GiB in order, every other 64 MiB cached, no route named, into device memory",
        peer: "the absent stretches alone, cold, no route named",
        target: Target::Ratio(1.0 / 1.1),
        run: |scene, pairs, _| half::in_order(scene, pairs, Half::Alternating),
    },
    Case {
        name: "half-rows",
        what: "65536 random rows of 4 KiB of a file of 4 GiB, every other 64 MiB cached, no route named, into device memory",
        peer: "the absent rows alone, cold, no route named",
        target: Target::Ratio(1.0 / 1.15),
        run: |scene, pairs, _| half::rows(scene, pairs),
    },
    Case {
        name: "evict",
        what: "evict of 4 GiB cached",
        peer: "bare fdatasync + posix_fadvise",
        target: Target::Ratio(1.0 / 1.2),
        run: |scene, pairs, _| cache::evict_large(scene, pairs),
    },
    Case {
        name: "status-vmtouch",
        what: "the whole process: what is cached of a file of 4 GiB, all of it cached",
        peer: "vmtouch",
        target: Target::Ratio(10.0),
        run: |scene, pairs, cachectl| cache::status(scene, pairs, cachectl, "vmtouch"),
    },
    Case {
        name: "status-fincore",
        what: "the whole process: what is cached of a file of 4 GiB, all of it cached",
        peer: "fincore",
        target: Target::Ratio(10.0),
        run: |scene, pairs, cachectl| cache::status(scene, pairs, cachectl, "fincore"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_a_name_of_its_own_and_tells_of_how_many_configurations_a_peer_is_the_best() {
        let mut names: Vec<_> = ALL.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        let peers = [
            ("safetensors", Peer::Safetensors),
            ("fastsafetensors", Peer::Fastsafetensors),
            ("instanttensor", Peer::InstantTensor),
            ("runai", Peer::Runai),
        ];
        let states = [
            ("cold", State::Cold),
            ("warm", State::Warm),
            ("half", State::Half),
        ];
        for (state_name, state) in states {
            for (peer_name, peer) in peers {
                let name = format!("model-{state_name}-{peer_name}");
                let case = ALL.iter().find(|case| case.name == name).unwrap();
                let tried = peer.configurations(state).len();
                let told = format!("best of {tried} configurations");
                assert!(case.peer.ends_with(&told), "{name}: {}", case.peer);
            }
        }
    }
}
