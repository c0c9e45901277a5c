//! Modules, and the kernels that gather, against the CPU.

use std::ffi::CString;

use super::registered::{ALL, LEN as MAPPED, Mapped};
use super::{entered, held};
use crate::child::this_test;
use crate::double::{Driver, INVALID_VALUE, SUCCESS, made};
use crate::scene::noise;

pub(crate) const PTX: &str = include_str!("../../../src/cuda/gather/gather.ptx");
pub(crate) const UNSUPPORTED_PTX_VERSION: i32 = 222;
const NOT_FOUND: i32 = 500;
const NONE: u64 = u64::MAX;

/// The module of the kernels that gather.
pub(crate) fn module(driver: &Driver) -> usize {
    let ptx = CString::new(PTX).unwrap();
    made(|to| driver.cuModuleLoadData(to, ptx.as_ptr()))
}

pub(crate) fn words(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn longs(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn held_words(driver: &Driver, at: u64, count: usize) -> Vec<u32> {
    let bytes = held(driver, at, count * 4);
    let words = bytes.chunks(4).map(|word| word.try_into().unwrap());
    words.map(u32::from_le_bytes).collect()
}

/// Of a source: kernels read whole words of 16 bytes, so that memory ends with one.
const WORDS: u64 = 1008;

fn random_rows(count: usize, rows: u32) -> Vec<u32> {
    let bytes = noise(7, count as u64 * 4);
    let numbers = bytes.chunks_exact(4).map(|word| word.try_into().unwrap());
    numbers
        .map(|word| u32::from_le_bytes(word) % rows)
        .collect()
}

fn free(driver: &Driver, memory: &[u64]) {
    for at in memory {
        assert_eq!(driver.cuMemFree_v2(*at), SUCCESS);
    }
}

/// Launches on the null stream with enough threads for so many groups of lanes, and waits.
fn run(driver: &Driver, function: usize, groups: u64, lanes: u64, arguments: &[u64]) {
    let blocks = u32::try_from((groups * lanes).div_ceil(256)).unwrap();
    assert_eq!(driver.launch(function, blocks, 256, 0, arguments), SUCCESS);
    assert_eq!(driver.cuCtxSynchronize(), SUCCESS);
}

#[test]
fn a_kernel_that_is_not_in_the_module_is_not_found() {
    entered(this_test!(), |driver| {
        let module = module(driver);
        let mut function = 0;
        let found = driver.cuModuleGetFunction(&raw mut function, module, c"gather_all".as_ptr());
        assert_eq!(found, NOT_FOUND);
        assert_ne!(driver.function(module, c"gather_parts"), 0);
        assert_eq!(driver.cuModuleUnload(module), SUCCESS);
    });
}

#[test]
fn ptx_that_is_newer_than_the_driver_is_refused() {
    entered(this_test!(), |driver| {
        let newer = PTX.replace("\n.version 7.4\n", "\n.version 99.0\n");
        let ptx = CString::new(newer).unwrap();
        let mut module = 0;
        let loaded = driver.cuModuleLoadData(&raw mut module, ptx.as_ptr());
        assert_eq!(loaded, UNSUPPORTED_PTX_VERSION);
    });
}

#[test]
fn blocks_and_threads_that_cannot_be_are_refused() {
    entered(this_test!(), |driver| {
        let module = module(driver);
        let function = driver.function(module, c"gather_parts");
        let nothing = [0, 0, 8, 0];
        for (blocks, threads) in [(0, 256), (1, 0), (1, 1056), (1 << 31, 256)] {
            let launched = driver.launch(function, blocks, threads, 0, &nothing);
            assert_eq!(launched, INVALID_VALUE, "{blocks} blocks of {threads}");
        }
        assert_eq!(driver.launch(function, 1, 1024, 0, &nothing), SUCCESS);
        assert_eq!(driver.cuCtxSynchronize(), SUCCESS);
        assert_eq!(driver.cuModuleUnload(module), SUCCESS);
    });
}

#[test]
fn parts_come_from_memory_of_every_kind() {
    entered(this_test!(), |driver| {
        let module = module(driver);
        let function = driver.function(module, c"gather_parts");
        let mapped = Mapped::new();
        assert_eq!(
            driver.cuMemHostRegister_v2(mapped.at(), MAPPED, ALL),
            SUCCESS
        );
        let registered = made(|to| driver.cuMemHostGetDevicePointer_v2(to, mapped.at(), 0));
        let on_device = driver.placed(&noise(1, WORDS));
        let pinned: usize = made(|to| driver.cuMemHostAlloc(to, WORDS as usize, 1));
        // SAFETY: so many bytes are pinned there, and nothing reads them yet.
        #[allow(unsafe_code)]
        let slot = unsafe { std::slice::from_raw_parts_mut(pinned as *mut u8, WORDS as usize) };
        slot.copy_from_slice(&noise(2, WORDS));

        // Where each part comes from, as an address and as bytes.
        let parts = [
            (registered + 4999, &mapped.bytes()[4999..60_000]),
            (on_device + 3, &noise(1, WORDS)[3..998]),
            (pinned as u64 + 17, &noise(2, WORDS)[17..]),
            (registered, &[][..]),
            (
                registered + MAPPED as u64 - 1,
                &mapped.bytes()[MAPPED - 1..],
            ),
        ];
        let (mut table, mut expected) = (Vec::new(), vec![0xee]);
        for (from, bytes) in parts {
            table.extend([from, expected.len() as u64, bytes.len() as u64]);
            expected.extend_from_slice(bytes);
        }
        expected.push(0xee);
        let count = parts.len() as u64;
        let table = driver.placed(&longs(table));
        for lanes in [1, 2, 4, 8, 16, 32] {
            let destination = driver.placed(&vec![0xee; expected.len()]);
            run(
                driver,
                function,
                count,
                lanes,
                &[table, count, lanes, destination],
            );
            assert!(
                held(driver, destination, expected.len()) == expected,
                "{lanes} lanes"
            );
            free(driver, &[destination]);
        }
        free(driver, &[table, on_device]);
        assert_eq!(driver.cuMemFreeHost(pinned), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
        assert_eq!(driver.cuModuleUnload(module), SUCCESS);
    });
}

/// Rows that are short, odd, and longer than what one group of lanes moves.
#[test]
fn rows_by_their_numbers_are_what_the_cpu_gathers() {
    entered(this_test!(), |driver| {
        let module = module(driver);
        let narrow = driver.function(module, c"gather_rows_u32");
        let wide = driver.function(module, c"gather_rows_u64");
        let mapped = Mapped::new();
        let bytes = mapped.bytes();
        // Two registrations, so that rows lie across their border.
        let border = 33 * 4096;
        let second = mapped.at() + border;
        assert_eq!(
            driver.cuMemHostRegister_v2(mapped.at(), border, ALL),
            SUCCESS
        );
        assert_eq!(
            driver.cuMemHostRegister_v2(second, MAPPED - border, ALL),
            SUCCESS
        );
        let source = made(|to| driver.cuMemHostGetDevicePointer_v2(to, mapped.at(), 0));
        for (row_bytes, lanes) in [(1, 1), (353, 8), (4096, 32), (16_384, 32), (40_000, 16)] {
            let rows = u32::try_from(MAPPED / row_bytes).unwrap();
            let numbers = random_rows(50, rows);
            let (count, length) = (numbers.len() as u64, row_bytes as u64);
            let row = |number: &u32| &bytes[*number as usize * row_bytes..][..row_bytes];
            let expected: Vec<u8> = numbers.iter().flat_map(row).copied().collect();
            let groups = count * length.div_ceil(16_384);
            let order = driver.placed(&words((0..50).rev()));
            let wrong = driver.placed(&longs([NONE]));
            let indices = [
                (narrow, driver.placed(&words(numbers.iter().copied()))),
                (
                    wide,
                    driver.placed(&longs(numbers.iter().map(|number| u64::from(*number)))),
                ),
            ];
            for ((function, indices), order) in indices.into_iter().zip([0, order]) {
                let destination = driver.placed(&vec![0xee; expected.len()]);
                let arguments = [
                    indices,
                    order,
                    count,
                    source,
                    length,
                    length,
                    u64::from(rows),
                    lanes,
                    destination,
                    wrong,
                ];
                run(driver, function, groups, lanes, &arguments);
                assert!(
                    held(driver, destination, expected.len()) == expected,
                    "{row_bytes}"
                );
                free(driver, &[destination]);
            }
            assert_eq!(held(driver, wrong, 8), longs([NONE]));
            free(driver, &[order, wrong, indices[0].1, indices[1].1]);
        }
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(second), SUCCESS);
        assert_eq!(driver.cuModuleUnload(module), SUCCESS);
    });
}

#[test]
fn the_first_wrong_number_is_told_and_its_row_left_out() {
    entered(this_test!(), |driver| {
        let module = module(driver);
        let function = driver.function(module, c"gather_rows_u32");
        let source = driver.placed(&noise(3, WORDS));
        let indices = driver.placed(&words([9, 10, 0, u32::MAX]));
        let (destination, wrong) = (driver.placed(&[0xee; 400]), driver.placed(&longs([NONE])));
        let arguments = [indices, 0, 4, source, 100, 100, 10, 8, destination, wrong];
        run(driver, function, 4, 8, &arguments);
        assert_eq!(held(driver, wrong, 8), longs([1]));
        let bytes = noise(3, WORDS);
        let expected = [&bytes[900..1000], &[0xee; 100], &bytes[..100], &[0xee; 100]].concat();
        assert!(held(driver, destination, 400) == expected);
        free(driver, &[source, indices, destination, wrong]);
        assert_eq!(driver.cuModuleUnload(module), SUCCESS);
    });
}

#[test]
fn an_order_has_each_row_once_and_those_of_a_window_together() {
    entered(this_test!(), |driver| {
        const COUNT: usize = 10_000;
        const WINDOWS: u64 = 13;
        let module = module(driver);
        let count_windows = driver.function(module, c"count_windows_u32");
        let start_windows = driver.function(module, c"start_windows");
        let order_rows = driver.function(module, c"order_rows_u32");
        let numbers = random_rows(COUNT, 1000);
        // Rows of 100 bytes in windows of 8 KiB.
        let window = |number: u32| (number * 100) >> 13;
        let indices = driver.placed(&words(numbers.iter().copied()));
        let counts = driver.placed(&words([0; WINDOWS as usize]));
        let order = driver.placed(&vec![0xee; COUNT * 4]);
        let blocks = u32::try_from(COUNT.div_ceil(16 * 256)).unwrap();
        let ordered = [indices, COUNT as u64, 100, 13, WINDOWS, counts, order];
        assert_eq!(
            driver.launch(count_windows, blocks, 256, 0, &ordered[..6]),
            SUCCESS
        );
        assert_eq!(
            driver.launch(start_windows, 1, 1024, 0, &[counts, WINDOWS]),
            SUCCESS
        );
        assert_eq!(driver.launch(order_rows, blocks, 256, 0, &ordered), SUCCESS);
        assert_eq!(driver.cuCtxSynchronize(), SUCCESS);

        let order_is = held_words(driver, order, COUNT);
        let windows: Vec<u32> = order_is
            .iter()
            .map(|row| window(numbers[*row as usize]))
            .collect();
        assert!(windows.is_sorted());
        let mut rows = order_is;
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..COUNT as u32));
        free(driver, &[indices, counts, order]);
        assert_eq!(driver.cuModuleUnload(module), SUCCESS);
    });
}
