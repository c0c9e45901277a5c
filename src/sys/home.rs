//! Whether this process is the one in which something was made. A fork copies memory, but neither
//! threads nor rings nor the contexts of a driver.

use memmap2::MmapMut;

/// The process in which it was made.
#[derive(Debug)]
pub(crate) struct Home {
    /// A page that begins with 1, and with 0 in the child of a fork. `None` where the kernel does not
    /// offer such.
    mark: Option<MmapMut>,
    /// Serves where there is no mark. Processes of two namespaces may have the same number.
    number: u32,
}

impl Home {
    pub(crate) fn here() -> Self {
        Self {
            mark: wiped_by_a_fork(),
            number: std::process::id(),
        }
    }

    /// Whether this is that process, and not a child of it.
    pub(crate) fn is_here(&self) -> bool {
        match &self.mark {
            // SAFETY: the page is mapped. The kernel may have changed it behind the compiler's back.
            Some(page) => unsafe { page.as_ptr().read_volatile() == 1 },
            None => std::process::id() == self.number,
        }
    }
}

fn wiped_by_a_fork() -> Option<MmapMut> {
    let mut page = MmapMut::map_anon(1).ok()?;
    page[0] = 1;
    let len = page.len();
    // SAFETY: the mapping is ours alone, and stays as it is in this process.
    let told = unsafe { libc::madvise(page.as_mut_ptr().cast(), len, libc::MADV_WIPEONFORK) };
    (told == 0).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_told_from_its_parent_with_and_without_a_mark() {
        let unmarked = Home {
            mark: None,
            ..Home::here()
        };
        for home in [Home::here(), unmarked] {
            assert!(home.is_here());
            // SAFETY: the child looks at memory and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let same = home.is_here();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(same)) };
            }
            let mut status = 0;
            // SAFETY: waits for the child of this process.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((waited, status), (child, 0));
            assert!(home.is_here());
        }
    }
}
