//! What the kernel says that a thread or process has read from storage: `/proc/*/io`.

use std::collections::HashMap;

const TASKS: &str = "/proc/self/task";

/// Bytes that the calling thread has caused to be read from storage so far, read-ahead included;
/// `None` where the kernel does not count or does not tell.
pub(crate) fn thread_storage_read_bytes() -> Option<u64> {
    read_bytes(&std::fs::read_to_string("/proc/thread-self/io").ok()?)
}

/// What the calling thread, and the kernel's threads that its rings have put to work, have read
/// from storage so far. Some file systems (btrfs) never read in the thread that submits.
pub(crate) struct StorageReads {
    own: u64,
    /// By the number of the kernel's thread.
    of_rings: HashMap<String, u64>,
}

impl StorageReads {
    /// `None` where the kernel does not count or does not tell.
    pub(crate) fn now() -> Option<Self> {
        let tasks = std::fs::read_dir(TASKS).ok()?.flatten();
        let tasks = tasks.filter_map(|task| {
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            Some((task.file_name().into_string().ok()?, name))
        });
        let tasks = tasks.collect();
        let me = nix::unistd::gettid().to_string();
        let of_rings = ring_threads(&me, &tasks)?.into_iter().filter_map(|number| {
            // A thread may have ended since; it was idle then.
            let text = std::fs::read_to_string(format!("{TASKS}/{number}/io")).ok()?;
            Some((number.to_owned(), read_bytes(&text)?))
        });
        Some(Self {
            own: thread_storage_read_bytes()?,
            of_rings: of_rings.collect(),
        })
    }

    /// Bytes read since then.
    pub(crate) fn since(&self, before: &Self) -> u64 {
        let of_rings = self.of_rings.iter().map(|(number, now)| {
            let then = before.of_rings.get(number).copied();
            now.saturating_sub(then.unwrap_or(0))
        });
        self.own.saturating_sub(before.own) + of_rings.sum::<u64>()
    }
}

/// The kernel's threads that work for the rings of thread `me`, of all by number and name. Their names
/// hold the number that their owner has on the host; `None` where that is nobody's here, as in a
/// container: they may be anybody's then.
fn ring_threads<'t>(me: &str, tasks: &'t HashMap<String, String>) -> Option<Vec<&'t str>> {
    let mut mine = Vec::new();
    for (number, name) in tasks {
        match name.trim_end().strip_prefix("iou-wrk-") {
            Some(owner) if owner == me => mine.push(number.as_str()),
            Some(owner) if !tasks.contains_key(owner) => return None,
            _ => {}
        }
    }
    Some(mine)
}

/// Bytes that all threads of the process have caused to be read from storage so far.
pub(crate) fn process_storage_read_bytes() -> Option<u64> {
    read_bytes(&std::fs::read_to_string("/proc/self/io").ok()?)
}

fn read_bytes(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("read_bytes: "))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::ring_threads;

    #[test]
    fn threads_of_rings_are_told_apart_or_unknown() {
        let tasks = |names: &[(&str, &str)]| {
            let line = |(number, name): &(&str, &str)| ((*number).to_owned(), format!("{name}\n"));
            names.iter().map(line).collect()
        };
        let host = [
            ("7", "main"),
            ("8", "other"),
            ("9", "iou-wrk-7"),
            ("10", "iou-wrk-8"),
        ];
        assert_eq!(ring_threads("7", &tasks(&host)), Some(vec!["9"]));
        assert_eq!(ring_threads("8", &tasks(&host)), Some(vec!["10"]));
        assert_eq!(ring_threads("7", &tasks(&host[..2])), Some(vec![]));
        let container = [("7", "main"), ("9", "iou-wrk-31007")];
        assert_eq!(ring_threads("7", &tasks(&container)), None);
    }

    #[test]
    fn the_right_line_is_taken() {
        let text = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\ncancelled_write_bytes: 0\n";
        assert_eq!(super::read_bytes(text), Some(4096));
        assert_eq!(super::read_bytes(""), None);
    }
}
