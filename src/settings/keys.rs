//! The table of settings: an entry each.

use super::*;

/// One key of the table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name, also the name of the environment's variable.
    pub name: &'static str,
    /// The default, as text that [`Settings::set`] accepts.
    pub default: &'static str,
    /// The unit of the value.
    pub unit: &'static str,
    /// What is accepted, in words.
    pub accepted: &'static str,
    /// What it does.
    pub doc: &'static str,
    pub(super) store: fn(&mut Settings, &str) -> Option<()>,
    pub(super) show: fn(&Settings) -> String,
}

/// Every key. The order is that of the README's table.
pub static KEYS: [Key; 18] = [
    Key {
        name: "GPUMAP_ROUTE",
        default: "auto",
        unit: "name",
        accepted: "auto, buffered, mapped, direct or gds",
        doc: "the route of reads that name none; auto takes the cheapest that can serve the read",
        store: |s, text| {
            s.route = if text == "auto" {
                None
            } else {
                Some(text.parse().ok()?)
            };
            Some(())
        },
        show: |s| {
            s.route
                .map_or_else(|| "auto".to_owned(), |route| route.to_string())
        },
    },
    Key {
        name: "GPUMAP_CACHE",
        default: "leave",
        unit: "name",
        accepted: "leave or fill",
        doc: "whether reads leave the page cache as it is, where that is possible and faster, or fill it for the next",
        store: |s, text| {
            s.cache = match text {
                "leave" => Cache::Leave,
                "fill" => Cache::Fill,
                _ => return None,
            };
            Some(())
        },
        show: |s| s.cache.to_string(),
    },
    Key {
        name: "GPUMAP_WORKERS",
        default: "auto",
        unit: "threads",
        accepted: "auto (one for each core) or a number from 1 to 1024",
        doc: "threads that one read may use, the caller's own among them; parked when idle",
        store: |s, text| {
            s.workers = match text {
                "auto" => None,
                number => Some(within(number.parse().ok()?, 1, 1024)?),
            };
            Some(())
        },
        show: |s| s.workers().to_string(),
    },
    Key {
        name: "GPUMAP_PIECE",
        default: "4MiB",
        unit: "bytes",
        accepted: "4KiB to 1GiB",
        doc: "what a worker moves at once, and the size of a staging slot; a read of one piece stays on the caller's thread",
        store: |s, text| {
            s.piece_bytes = within(parse_bytes(text)?, 4 << 10, 1 << 30)?;
            Some(())
        },
        show: |s| s.piece_bytes.to_string(),
    },
    Key {
        name: "GPUMAP_STAGING",
        default: "64MiB",
        unit: "bytes",
        accepted: "4KiB to 1TiB, and never less than one piece is used",
        doc: "the most memory that staging slots take; at the bound a worker waits for a slot",
        store: |s, text| {
            s.staging_bytes = within(parse_bytes(text)?, 4 << 10, 1 << 40)?;
            Some(())
        },
        show: |s| s.staging_bytes.to_string(),
    },
    // The default is no measurement: four slots of 2 MiB for each of 16 threads. More threads wait for each other.
    Key {
        name: "GPUMAP_PINNED",
        default: "128MiB",
        unit: "bytes",
        accepted: "64KiB to 1TiB",
        doc: "the most pinned memory for reads into device memory; each thread takes two pieces of it in four slots, four pieces where these are small, all where that is less; at the bound it waits; reads on streams may take as much again, and are refused at the bound",
        store: |s, text| {
            s.pinned_bytes = within(parse_bytes(text)?, 64 << 10, 1 << 40)?;
            Some(())
        },
        show: |s| s.pinned_bytes.to_string(),
    },
    Key {
        name: "GPUMAP_CHUNK",
        default: "64MiB",
        unit: "bytes",
        accepted: "a power of 2, 64KiB to 1GiB",
        doc: "what of a file is registered with a device at once, for it to read in place",
        store: |s, text| {
            let bytes = within(parse_bytes(text)?, 64 << 10, 1 << 30)?;
            s.chunk_bytes = bytes.is_power_of_two().then_some(bytes)?;
            Some(())
        },
        show: |s| s.chunk_bytes.to_string(),
    },
    Key {
        name: "GPUMAP_REGISTERED",
        default: "auto",
        unit: "bytes",
        accepted: "auto (a quarter of the memory that is available, in the machine or in its control group, when first needed) or 0 to 64TiB",
        doc: "the most that is kept registered with devices, and so in the page cache; the least recently used is released",
        store: |s, text| {
            s.registered_bytes = match text {
                "auto" => None,
                bytes => Some(within(parse_bytes(bytes)?, 0, 64 << 40)?),
            };
            Some(())
        },
        show: |s| {
            s.registered_bytes
                .map_or_else(|| "auto".to_owned(), |bytes| bytes.to_string())
        },
    },
    Key {
        name: "GPUMAP_GDS",
        default: "auto",
        unit: "name",
        accepted: "auto, on or off",
        doc: "whether cuFile (GPUDirect Storage) reads into device memory: auto where the machine is set up for accelerated reads and the bytes are not cached, on always, off never loads libcufile",
        store: |s, text| {
            s.gds = match text {
                "auto" => Gds::Auto,
                "on" => Gds::On,
                "off" => Gds::Off,
                _ => return None,
            };
            Some(())
        },
        show: |s| s.gds.to_string(),
    },
    Key {
        name: "GPUMAP_GDS_THRESHOLD",
        default: "16KiB",
        unit: "bytes",
        accepted: "0 to 1TiB",
        doc: "the least that rows must have, on average, for auto to read them by cuFile",
        store: |s, text| {
            s.gds_threshold = within(parse_bytes(text)?, 0, 1 << 40)?;
            Some(())
        },
        show: |s| s.gds_threshold.to_string(),
    },
    Key {
        name: "GPUMAP_GDS_TASK",
        default: "4MiB",
        unit: "bytes",
        accepted: "4KiB to 1TiB, a multiple of 4KiB",
        doc: "what one call of cuFile reads",
        store: |s, text| {
            let bytes = within(parse_bytes(text)?, 4 << 10, 1 << 40)?;
            s.gds_task_bytes = (bytes % (4 << 10) == 0).then_some(bytes)?;
            Some(())
        },
        show: |s| s.gds_task_bytes.to_string(),
    },
    Key {
        name: "GPUMAP_CUFILE",
        default: "auto",
        unit: "path",
        accepted: "auto (libcufile.so.0, then libcufile.so, as the loader finds them, then in CUDA toolkits) or a file",
        doc: "the library of GPUDirect Storage",
        store: |s, text| {
            s.cufile = match text {
                "" => return None,
                "auto" => None,
                path => Some(path.into()),
            };
            Some(())
        },
        show: |s| {
            s.cufile
                .as_deref()
                .map_or_else(|| "auto".to_owned(), |path| path.display().to_string())
        },
    },
    Key {
        name: "GPUMAP_SUBMITTED",
        default: "64",
        unit: "reads",
        accepted: "1 to 65536",
        doc: "reads that are submitted and not done; at the bound the next is refused, and its destination handed back",
        store: |s, text| {
            s.submitted = within(text.parse().ok()?, 1, 65_536)?;
            Some(())
        },
        show: |s| s.submitted.to_string(),
    },
    Key {
        name: "GPUMAP_DEPTH",
        default: "128",
        unit: "reads",
        accepted: "1 to 4096",
        doc: "reads past the page cache that one thread has under way at once; those by way of a slot share it",
        store: |s, text| {
            s.depth = within(text.parse().ok()?, 1, 4096)?;
            Some(())
        },
        show: |s| s.depth.to_string(),
    },
    Key {
        name: "GPUMAP_MERGE_GAP",
        default: "4KiB",
        unit: "bytes",
        accepted: "0 to 16MiB",
        doc: "rows less than this apart are read from storage in one go, with what lies between",
        store: |s, text| {
            s.merge_gap = within(parse_bytes(text)?, 0, 16 << 20)?;
            Some(())
        },
        show: |s| s.merge_gap.to_string(),
    },
    Key {
        name: COSTS,
        default: "auto",
        unit: "path",
        accepted: "auto (as measured on one machine) or a file, as cachectl calibrate writes it",
        doc: "what bytes, rows and calls cost by each route, by which auto chooses; read when it is set",
        store: |s, text| {
            s.costs_file = match text {
                "" => return None,
                "auto" => None,
                path => Some(path.into()),
            };
            Some(())
        },
        show: |s| {
            s.costs_file
                .as_deref()
                .map_or_else(|| "auto".to_owned(), |path| path.display().to_string())
        },
    },
    Key {
        name: "GPUMAP_EVICT_WAIT",
        default: "2000",
        unit: "milliseconds",
        accepted: "0 to 600000",
        doc: "how long an eviction goes on trying while pages stay that may still go",
        store: |s, text| {
            s.evict_wait = Duration::from_millis(within(text.parse().ok()?, 0, 600_000)?);
            Some(())
        },
        show: |s| s.evict_wait.as_millis().to_string(),
    },
    Key {
        name: "GPUMAP_RESIDENCY_WINDOW",
        default: "128MiB",
        unit: "bytes",
        accepted: "1MiB to 1GiB",
        doc: "bytes of a file that one mincore call is asked about; bounds the memory for it",
        store: |s, text| {
            s.residency_window = within(parse_bytes(text)?, 1 << 20, 1 << 30)?;
            Some(())
        },
        show: |s| s.residency_window.to_string(),
    },
];

fn within<N: PartialOrd>(value: N, least: N, most: N) -> Option<N> {
    (least <= value && value <= most).then_some(value)
}
