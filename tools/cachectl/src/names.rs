//! Which files are meant: names on the command line, names in a list, files in directories; each
//! file once.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::args::NameArgs;
use crate::out::{Out, shown};

/// The most bytes of a line in a list: far more than a path may have, and few enough that what is
/// no list (`/dev/zero`) does not take all memory.
const LONGEST: u64 = 64 << 10;

/// A name behind which no file was found, and why.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) path: PathBuf,
    pub(crate) what: String,
}

impl Trouble {
    fn new(path: &Path, what: &str) -> Self {
        Self {
            path: path.to_owned(),
            what: format!("{}: {what}", path.display()),
        }
    }

    fn system(path: &Path, call: &str, error: &io::Error) -> Self {
        Self::new(
            path,
            &format!("{call} failed: {error}; check the name and the permissions"),
        )
    }
}

/// What is called with each file, and with each trouble.
type Visit<'v> = dyn FnMut(Result<&Path, Trouble>) + 'v;

/// Calls `visit` once for each file, whatever number of names it has been given, in the order of
/// the names, and for each name with which something is wrong. Tells the user where there is neither.
///
/// A name that cannot be looked at, or that is no regular file, is passed on: the library says what
/// is wrong with it.
pub(crate) fn visit(args: &NameArgs, out: &Out, visit: &mut Visit<'_>) {
    let mut any = false;
    let mut noticed = |name: Result<&Path, Trouble>| {
        any = true;
        visit(name);
    };
    let mut files = Files {
        recursive: args.recursive,
        one_file_system: args.one_file_system,
        directory_hint: "is a directory; use -r to take the files in it",
        seen: HashSet::new(),
        visit: &mut noticed,
    };
    for name in &args.files {
        files.name(Path::new(name));
    }
    if let Some(list) = &args.files_from {
        files.list(list, if args.null { 0 } else { b'\n' });
    }
    if !any {
        out.note(&"no files: nothing was done");
    }
}

/// The same for a command that looks into no directories.
pub(crate) fn visit_files(names: &[OsString], visit: &mut Visit<'_>) {
    let mut files = Files {
        recursive: false,
        one_file_system: false,
        directory_hint: "is a directory; name a file in it",
        seen: HashSet::new(),
        visit,
    };
    for name in names {
        files.name(Path::new(name));
    }
}

struct Files<'f, 'v> {
    recursive: bool,
    one_file_system: bool,
    /// What is said of a directory that is not looked into.
    directory_hint: &'static str,
    /// Device and inode.
    seen: HashSet<(u64, u64)>,
    visit: &'f mut Visit<'v>,
}

impl Files<'_, '_> {
    /// A name that the user gave.
    fn name(&mut self, path: &Path) {
        match std::fs::metadata(path) {
            Ok(stat) if stat.is_dir() && self.recursive => self.directory(path),
            Ok(stat) if stat.is_dir() => (self.visit)(Err(Trouble::new(path, self.directory_hint))),
            Ok(stat) => self.once(path, &stat),
            Err(_) if path.as_os_str().is_empty() => (self.visit)(Err(Trouble {
                path: path.to_owned(),
                what: "a name is empty; name a file".to_owned(),
            })),
            Err(_) => (self.visit)(Ok(path)),
        }
    }

    fn once(&mut self, path: &Path, stat: &Metadata) {
        if self.seen.insert((stat.dev(), stat.ino())) {
            (self.visit)(Ok(path));
        }
    }

    /// The regular files in a directory. Symbolic links in it are not followed: what they name is
    /// either in the directory as well, or was not asked for.
    fn directory(&mut self, path: &Path) {
        let walk = WalkDir::new(path)
            .sort_by_file_name()
            .same_file_system(self.one_file_system);
        for entry in walk {
            match entry {
                Ok(entry) if entry.file_type().is_file() => match entry.metadata() {
                    Ok(stat) => self.once(entry.path(), &stat),
                    Err(_) => (self.visit)(Ok(entry.path())),
                },
                Ok(_) => {}
                Err(error) => (self.visit)(Err(walk_trouble(path, error))),
            }
        }
    }

    fn list(&mut self, list: &OsStr, end: u8) {
        let from = Path::new(list);
        let reader = match open(list) {
            Ok(reader) => reader,
            Err(error) => return (self.visit)(Err(Trouble::system(from, "open", &error))),
        };
        for name in lines(reader, end) {
            match name {
                Ok(name) if name.is_empty() => {}
                Ok(name) => self.name(Path::new(&OsString::from_vec(name))),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let what = format!("{error}; give a list of names, and -0 where NUL ends them");
                    return (self.visit)(Err(Trouble::new(from, &what)));
                }
                Err(error) => return (self.visit)(Err(Trouble::system(from, "read", &error))),
            }
        }
    }
}

/// A file to read text from; `-` is standard input.
pub(crate) fn open(name: &OsStr) -> io::Result<Box<dyn BufRead>> {
    if name == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::new(File::open(name)?)))
}

/// What stands between the bytes `end`. A line that is too long is an error, `InvalidData`; nothing
/// that comes after an error has a meaning.
pub(crate) fn lines(mut text: impl BufRead, end: u8) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let mut next = move || {
        let mut line = Vec::new();
        let read = text.by_ref().take(LONGEST).read_until(end, &mut line)?;
        if line.last() == Some(&end) {
            line.pop();
        } else if read as u64 == LONGEST {
            let what = format!("a line has {LONGEST} bytes or more");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok((read > 0).then_some(line))
    };
    std::iter::from_fn(move || next().transpose())
}

fn walk_trouble(root: &Path, error: walkdir::Error) -> Trouble {
    let path = error.path().unwrap_or(root).to_owned();
    match error.into_io_error() {
        Some(error) => Trouble::system(&path, "opendir", &error),
        None => Trouble::new(&path, "the directory holds itself; name what is in it"),
    }
}

/// For a line of progress: the end of the name tells files apart.
pub(crate) fn brief(path: &Path) -> String {
    const MOST: usize = 40;
    let name = shown(path);
    let letters = name.chars().count();
    if letters <= MOST {
        return name;
    }
    let tail: String = name.chars().skip(letters - MOST + 1).collect();
    format!("…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_are_told_to() {
        let of = |text: &[u8], end| {
            let all: io::Result<Vec<_>> = lines(text, end).collect();
            all.unwrap()
        };
        assert_eq!(of(b"a\n\nb", b'\n'), [&b"a"[..], b"", b"b"]);
        assert_eq!(of(b"a\nb\0", 0), [b"a\nb"]);
        assert_eq!(of(b"", 0), [b""; 0]);
        let longest = vec![b'x'; LONGEST as usize - 1];
        let two = [&longest[..], b"\n", &longest].concat();
        assert_eq!(of(&two, b'\n'), [&longest[..], &longest]);
    }

    #[test]
    fn a_line_without_end_takes_no_memory_without_end() {
        let error = lines(BufReader::new(io::repeat(0)), b'\n').next();
        let error = error.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
