//! What the kernel says that a thread or process has read from storage: `/proc/*/io`.

/// Bytes that the calling thread has caused to be read from storage so far, read-ahead included;
/// `None` where the kernel does not count or does not tell.
pub(crate) fn thread_storage_read_bytes() -> Option<u64> {
    read_bytes(&std::fs::read_to_string("/proc/thread-self/io").ok()?)
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
