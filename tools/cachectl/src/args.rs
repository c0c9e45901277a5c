//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use gpumap::sample::State;

use crate::expect::Expect;
use crate::ranges::Bounds;
use crate::values::{Per, RouteChoice, To, bytes, count, device, named, state, threads};

/// Every help ends with what the exit status means.
macro_rules! help {
    ($text:literal) => {
        concat!(
            $text,
            "

Exit status:
  0    done
  1    done, but the answer is no: an expectation not met, pages that stayed or
       are missing, or may have, no valid sample, reads not seen accelerated
  2    wrong usage, or an error for at least one file; the others are done
  130  interrupted
  141  nobody reads the output any more"
        )
    };
}

const AFTER: &str = help!(
    "\
Numbers of bytes take units: 4K, 4KiB (1024 each), 4kB (1000), up to T. \
Settings come from the environment: see `cachectl settings`."
);

const STATUS_EXAMPLES: &str = help!(
    "\
Examples:
  cachectl status weights.bin
  cachectl status -r models/ --expect warm     exit 1 unless every file is cached whole
  cachectl status --expect '>=90%' -q a b      for scripts: nothing printed, see $?
  cachectl status --map weights.bin            where in the file the cached pages lie
  find . -name '*.bin' -print0 | cachectl status -0 --files-from - --json"
);

const EVICT_EXAMPLES: &str = help!(
    "\
Dropping loses nothing, but every reader of the file pays for it. It needs no privilege.

Examples:
  cachectl evict weights.bin
  cachectl evict -r models/ --json
  cachectl evict --range 1G-2G weights.bin"
);

const WARM_EXAMPLES: &str = help!(
    "\
What is missing is read, and counted afterwards. Holes take no memory unless they are wanted; status \
counts them as missing. Where the kernel does not tell what is cached, as of another user's file, every \
byte is read all the same: that is said, and counts as done.

Examples:
  cachectl warm weights.bin
  cachectl warm -r models/ --json              one record a file: what is missing, and why
  cachectl warm --range 0-1G weights.bin"
);

const READ_EXAMPLES: &str = help!(
    "\
A file of rows has one row a line, OFFSET LENGTH, with units; # begins a comment. \
Large reads go in windows of 64 MiB; times, bytes and pages are those of all windows together, \
reasons those of one.

Examples:
  cachectl read weights.bin --digest           the same digest as sha256sum
  cachectl read weights.bin --offset 1M --len 64K --route mapped --measure
  cachectl read weights.bin --to gpu:0 --digest     the digest of what arrived on the device
  cachectl read weights.bin --rows rows.txt --workers 8 --json"
);

const LOAD_EXAMPLES: &str = help!(
    "\
All tensors are read by one call, whatever their sizes. In one allocation a file they lie where they lie \
behind the file's header, which is as well aligned as whoever wrote the file had it: the table says how well. \
In one allocation each they begin at a page on the host, and at 256 bytes at least on a GPU. A file with \
something wrong is told and left out, the others are loaded.

Examples:
  cachectl load model.safetensors --to gpu:0 --digest
  cachectl load model.safetensors.index.json       every shard that the index names
  cachectl load model-*.safetensors --per tensor --json --tensors"
);

const PLAN_EXAMPLES: &str = help!(
    "\
Examples:
  cachectl plan weights.bin
  cachectl plan weights.bin --to gpu:0
  cachectl plan weights.bin --rows rows.txt --json     one record a piece, then the reasons"
);

const BENCH_EXAMPLES: &str = help!(
    "\
Lists multiply: every combination is measured. Before each run the state is made and proved; a \
run whose state was not proved is void. Every byte is checked, outside the timed part. \
Without FILE a temporary file is made, and is gone at the end.

Examples:
  cachectl bench
  cachectl bench weights.bin --states cold,half,warm --patterns seq,random --blocks 4K,1M
  cachectl bench weights.bin --to host
  cachectl bench weights.bin --patterns strided --states cold --time 30
  cachectl bench --size 256M --routes buffered,mapped --workers 1,2 --samples 7 --json"
);

const DOCTOR_EXAMPLES: &str = help!(
    "\
Every fact comes with its evidence, the file or the call that was asked, and where something is \
missing or poor, with what to do about it. Nothing is changed; one page of a file or a few are read, \
past the page cache.

Examples:
  cachectl doctor
  cachectl doctor weights.bin
  cachectl doctor weights.bin --json | jq -r 'select(.mend).mend'"
);

const PATHS_EXAMPLES: &str = help!(
    "\
Runs, each in a process of its own, after the file was dropped from the page cache: reads by \
cuFile; the same with cuFile's compatibility mode forced; the best route without cuFile; and by \
cuFile in requests of 4 MiB and of 1 GiB. Which path cuFile took is what its own counters show, or \
nvidia-fs's. Each run is one sample: `bench` measures. Exit status 1 where the first run did not \
go past the CPU, or nobody tells.

Examples:
  cachectl paths weights.bin
  cachectl paths weights.bin --to gpu:1 --size 256M --json
  cachectl paths weights.bin --bundle report.txt     one file to send to who is to look at it"
);

const CALIBRATE_EXAMPLES: &str = help!(
    "\
Plans compare what reading costs by each route, as measured on one machine. This measures it on yours, in \
some seconds, with reads of a temporary file that is gone at the end, and writes a file that the setting \
GPUMAP_COSTS names. What is not measured stays as that file has it, where an earlier run on this machine \
wrote it, and else is left out and keeps its default; exit status 1 where nothing could be measured. Measure where your files lie, and while nothing else is going on.

Examples:
  cachectl calibrate --dir /data
  cachectl calibrate --dir /data --to gpu:0 --out costs.txt
  GPUMAP_COSTS=costs.txt cachectl plan weights.bin"
);

const SETTINGS_EXAMPLES: &str = help!(
    "\
Examples:
  cachectl settings
  GPUMAP_WORKERS=4 cachectl settings --json"
);

/// See what part of a file is cached, drop it or warm it and verify that, read it, and measure cold
/// against warm.
#[derive(Debug, Parser)]
#[command(name = "cachectl", version, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) style: Style,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How to answer.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Style {
    /// Print one JSON record a line; errors of files stand in the records
    #[arg(long, global = true, display_order = 900)]
    pub(crate) json: bool,
    /// Print nothing but errors, and records where --json is given
    #[arg(short, long, global = true, display_order = 900)]
    pub(crate) quiet: bool,
    /// status: print dirty pages and who told too; bench: its seed
    #[arg(
        short,
        long,
        global = true,
        display_order = 900,
        conflicts_with = "quiet"
    )]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what part of files is in the page cache
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Drop files from the page cache, and verify that they went
    #[command(visible_alias = "drop", after_help = EVICT_EXAMPLES)]
    Evict(EvictArgs),
    /// Read files into the page cache, and verify that they are there
    #[command(after_help = WARM_EXAMPLES)]
    Warm(WarmArgs),
    /// Read a file, a range of it, or rows, and tell how the bytes travelled
    #[command(after_help = READ_EXAMPLES)]
    Read(ReadArgs),
    /// Read the tensors of models (safetensors) into memory, all of them at once
    #[command(after_help = LOAD_EXAMPLES)]
    Load(LoadArgs),
    /// Show how a read would be done, without doing it
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Measure cold against warm
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Tell what the machine, its GPUs, files and their storage can do, and what could be better
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Show which path GPUDirect Storage takes, with cuFile, in its compatibility mode, and without it
    #[command(after_help = PATHS_EXAMPLES)]
    Paths(PathsArgs),
    /// One run of `paths`
    #[command(hide = true)]
    PathsRun(PathsRunArgs),
    /// Measure what reading costs on this machine, for plans to go by
    #[command(after_help = CALIBRATE_EXAMPLES)]
    Calibrate(CalibrateArgs),
    /// Show every setting, its value, and where that comes from
    #[command(after_help = SETTINGS_EXAMPLES)]
    Settings,
}

/// Which files.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Files; with -r also directories. Each file counts once, by whatever names it is given
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Take the regular files in directories, following no symbolic links in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// With -r: stay on the file system of each directory named
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Take names from this file too, one a line; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<OsString>,
    /// Names in --files-from end with NUL, not with a line break
    #[arg(short = '0', long, requires = "files_from")]
    pub(crate) null: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Look at this part of each file only: 4K-1M or 4K..1M, 100M- (to the end), -1G (from the start)
    #[arg(long, value_name = "START-END", allow_hyphen_values = true)]
    pub(crate) range: Option<Bounds>,
    /// Exit 1 unless every file is: cold, warm, or as '>=90%' says (also <=, >, <, =)
    #[arg(long, value_name = "STATE")]
    pub(crate) expect: Option<Expect>,
    /// Show where in each file the cached pages lie
    #[arg(long)]
    pub(crate) map: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EvictArgs {
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Drop this part of each file only: 4K-1M or 4K..1M, 100M- (to the end), -1G (from the start)
    #[arg(long, value_name = "START-END", allow_hyphen_values = true)]
    pub(crate) range: Option<Bounds>,
    /// With --range: leave large folios that reach over its edges
    #[arg(long)]
    pub(crate) no_exact: bool,
    /// Go on so many milliseconds while pages stay that may still go [default: GPUMAP_EVICT_WAIT]
    #[arg(long, value_name = "MS")]
    pub(crate) wait: Option<u64>,
    /// Instead of files: drop the pages of every file of the host (needs root; all processes pay)
    #[arg(long, conflicts_with_all = ["files", "files_from", "recursive", "range", "no_exact", "wait"])]
    pub(crate) system: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WarmArgs {
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Warm this part of each file only: 4K-1M or 4K..1M, 100M- (to the end), -1G (from the start)
    #[arg(long, value_name = "START-END", allow_hyphen_values = true)]
    pub(crate) range: Option<Bounds>,
    /// Read what is cached too
    #[arg(long)]
    pub(crate) everything: bool,
    /// Read holes too; they fill memory with zeros
    #[arg(long)]
    pub(crate) holes: bool,
}

/// What is asked for of a file.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// The file
    #[arg(value_parser = OsStringValueParser::new().try_map(named))]
    pub(crate) file: OsString,
    /// This part only: 4K-1M or 4K..1M, 100M- (to the end), -1G (from the start) [default: all]
    #[arg(long, value_name = "START-END", allow_hyphen_values = true, conflicts_with_all = ["offset", "len", "rows"])]
    pub(crate) range: Option<Bounds>,
    /// First byte [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = bytes, conflicts_with = "rows")]
    pub(crate) offset: Option<u64>,
    /// How many bytes [default: to the end]
    #[arg(long, value_name = "BYTES", value_parser = bytes, conflicts_with = "rows")]
    pub(crate) len: Option<u64>,
    /// Rows, one a line: OFFSET LENGTH; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) rows: Option<OsString>,
    /// Where the bytes go: host, or gpu:N
    #[arg(long, default_value = "host")]
    pub(crate) to: To,
    /// How many times more the same bytes will be read: a cache that is filled, or pages that are registered, are
    /// worth a slower first read then
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub(crate) again: u32,
    #[command(flatten)]
    pub(crate) way: WayArgs,
}

/// Which way bytes are read.
#[derive(Debug, Args)]
pub(crate) struct WayArgs {
    /// auto, buffered, mapped, direct or gds; a named one is taken or it is an error
    /// [default: GPUMAP_ROUTE]
    #[arg(long)]
    pub(crate) route: Option<RouteChoice>,
    /// leave the page cache as it is, where that is possible and faster, or fill it [default: GPUMAP_CACHE]
    #[arg(long, value_name = "leave|fill")]
    pub(crate) cache: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Threads, this one among them [default: GPUMAP_WORKERS]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<String>,
    /// Tell what was resident before each window, and what came from storage
    #[arg(long)]
    pub(crate) measure: bool,
    /// Tell the SHA-256 of the bytes as they lie in the destination
    #[arg(long)]
    pub(crate) digest: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Files of tensors, or indexes of such (their names end in .json)
    #[arg(required = true, value_name = "FILE", value_parser = OsStringValueParser::new().try_map(named))]
    pub(crate) files: Vec<OsString>,
    /// Where the tensors go: host, or gpu:N
    #[arg(long, default_value = "host")]
    pub(crate) to: To,
    /// One allocation for each file, or for each tensor
    #[arg(long, value_name = "WHAT", default_value = "file")]
    pub(crate) per: Per,
    #[command(flatten)]
    pub(crate) way: WayArgs,
    /// Threads, this one among them [default: GPUMAP_WORKERS]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<String>,
    /// Tell what was resident before, and what came from storage
    #[arg(long)]
    pub(crate) measure: bool,
    /// Tell the SHA-256 of each file's tensors, in the order of the file, as they lie in the destination
    #[arg(long)]
    pub(crate) digest: bool,
    /// Tell of each tensor too; with --digest its own
    #[arg(long)]
    pub(crate) tensors: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Threads of the read [default: GPUMAP_WORKERS]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Files to tell about, after the machine and its GPUs. Each counts once, by whatever names it is given
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<OsString>,
    /// Tell about this GPU only, as gpu:N; for host about none, nor about what reads into one take [default: every GPU]
    #[arg(long)]
    pub(crate) to: Option<To>,
}

#[derive(Debug, Args)]
pub(crate) struct PathsArgs {
    /// The file to read; it is never written
    #[arg(value_parser = OsStringValueParser::new().try_map(named))]
    pub(crate) file: OsString,
    /// The GPU that the bytes go to, as gpu:N
    #[arg(long, value_parser = device, default_value = "gpu:0")]
    pub(crate) to: To,
    /// Bytes to read, from the start of the file; all of a smaller one
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1G")]
    pub(crate) size: u64,
    /// Write what somebody needs who is to look at it into this new file: facts, runs, nvidia-fs's counters,
    /// cuFile's settings and its log, as plain text
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Folder of the temporary file; its storage is what is measured [default: one that is on storage]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Measure reads into a device too, as gpu:N
    #[arg(long, default_value = "host")]
    pub(crate) to: To,
    /// The file of costs to write; one that is there must be of this command
    #[arg(long, value_name = "FILE", default_value = "gpumap-costs.txt")]
    pub(crate) out: PathBuf,
    /// Bytes of the temporary file; less where that would take long or does not fit
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "1G")]
    pub(crate) size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct PathsRunArgs {
    /// The file
    pub(crate) file: OsString,
    #[arg(long)]
    pub(crate) to: To,
    /// Bytes from its start
    #[arg(long)]
    pub(crate) len: u64,
    /// Its name
    #[arg(long)]
    pub(crate) run: String,
    #[arg(long)]
    pub(crate) route: RouteChoice,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The file to read; it is never written [default: a temporary one of --size bytes]
    #[arg(value_parser = OsStringValueParser::new().try_map(named))]
    pub(crate) file: Option<OsString>,
    /// States: cold, half (cached in alternate stretches of 64 MiB), warm
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = state, default_value = "cold,warm")]
    pub(crate) states: Vec<State>,
    /// Patterns: seq, random, strided (rows in order, equally far apart)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["seq", "random", "strided"], default_value = "seq,random")]
    pub(crate) patterns: Vec<String>,
    /// Bytes of a piece (seq) or row (random, strided) [default: 1M for seq, 4K for rows]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    pub(crate) blocks: Vec<u64>,
    /// Where the bytes go: host, or gpu:N [default: gpu:0 where it can be had, else host]
    #[arg(long)]
    pub(crate) to: Option<To>,
    /// Routes: auto, buffered, mapped, direct, gds [default: GPUMAP_ROUTE]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) routes: Vec<RouteChoice>,
    /// Threads of a read, the caller's among them [default: GPUMAP_WORKERS]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    pub(crate) workers: Vec<usize>,
    /// Samples of each combination
    #[arg(long, value_name = "N", default_value = "5", value_parser = count)]
    pub(crate) samples: u64,
    /// Take as many samples of each as so many seconds have room for, one at least
    #[arg(long, value_name = "SECONDS", value_parser = count, conflicts_with = "samples")]
    pub(crate) time: Option<u64>,
    /// Rows of a random or strided sample [default: distinct ones, in at most 1/64 of the pages]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rows: Option<u64>,
    /// Bytes under test, from the start of the file [default: 1G, or all of a smaller FILE]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) size: Option<u64>,
    /// Folder of the temporary file [default: one that is on storage]
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub(crate) dir: Option<PathBuf>,
    /// Seed of the temporary file's bytes and of the order of rows
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    /// The terminal breaks paragraphs into lines: what is broken by hand would be broken twice.
    #[test]
    fn no_paragraph_of_a_help_is_broken_by_hand() {
        let cli = Cli::command();
        for command in cli.get_subcommands().chain([&cli]) {
            let help = command.get_after_help().map(ToString::to_string);
            let paragraphs = help.iter().flat_map(|help| help.split("\n\n"));
            for paragraph in paragraphs {
                let is_list = ["Examples:", "Exit status:"]
                    .iter()
                    .any(|it| paragraph.starts_with(it));
                assert!(is_list || !paragraph.contains('\n'), "{paragraph}");
                let widest = paragraph.lines().map(|line| line.chars().count()).max();
                assert!(!is_list || widest <= Some(100), "{paragraph}");
            }
        }
    }
}
