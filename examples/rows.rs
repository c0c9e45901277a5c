//! Reads rows of an embedding table, stored end to end as `f32`, and says which way they went.
//!
//! `cargo run --example rows [FILE ROW_FLOATS ROW...]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use gpumap::{Mmap, ReadOptions, Route};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let temporary = tempfile::NamedTempFile::new()?;
    let (path, floats, rows) = match args.as_slice() {
        [path, floats, rows @ ..] => {
            let rows: Result<Vec<u64>, _> = rows.iter().map(|row| row.parse()).collect();
            (path.into(), floats.parse::<u64>()?, rows?)
        }
        _ => {
            let table: Vec<u8> = (0..1000 * 64u16)
                .flat_map(|x| f32::from(x).to_le_bytes())
                .collect();
            std::fs::write(temporary.path(), table)?;
            (temporary.path().to_owned(), 64, vec![999, 0, 41, 0])
        }
    };
    let map = Mmap::open(path)?;
    let mut values = vec![0f32; rows.len() * usize::try_from(floats)?];
    let options = ReadOptions::new().measure(true);
    let report = map.gather_rows_with(&rows, floats * 4, &mut values, options)?;

    for (row, values) in rows.iter().zip(values.chunks(usize::try_from(floats)?)) {
        println!("row {row}: starts with {:?}", values.first());
    }
    for route in Route::ALL {
        match (report.route(route), report.reason(route)) {
            (Some(used), _) => println!("{route}: {} bytes in {} operations", used.bytes, used.ops),
            (None, Some(reason)) => println!("{route}: not taken: {reason}"),
            (None, None) => {}
        }
    }
    println!("resident before: {:?}", report.residency_before);
    println!("bytes from storage: {:?}", report.storage_read_bytes);
    Ok(())
}
