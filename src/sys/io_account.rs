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
        let me = format!("iou-wrk-{}", nix::unistd::gettid());
        let tasks = std::fs::read_dir(TASKS).ok()?.flatten();
        let of_rings = tasks.filter_map(|task| {
            let (number, folder) = (task.file_name().into_string().ok()?, task.path());
            let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
            // A thread may have ended since; it was idle then.
            let is_mine = read("comm")?.trim_end() == me;
            is_mine.then(|| Some((number, read_bytes(&read("io")?)?)))?
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

/// The same, for all threads of the process.
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
    #[test]
    fn the_right_line_is_taken() {
        let text = "rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\ncancelled_write_bytes: 0\n";
        assert_eq!(super::read_bytes(text), Some(4096));
        assert_eq!(super::read_bytes(""), None);
    }
}
