//! Gathers rows of an embedding table, stored end to end as `f32`, into the memory of a GPU; into host
//! memory where there is none.
//!
//! `cargo run --example read_to_device [FILE ROW_FLOATS ROW...]`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use gpumap::{Error, Mmap, Report, Route, Runtime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let temporary = tempfile::NamedTempFile::new()?;
    let (path, floats, rows) = match args.as_slice() {
        [path, floats, rows @ ..] => {
            let rows: Result<Vec<u64>, _> = rows.iter().map(|row| row.parse()).collect();
            (path.into(), floats.parse::<usize>()?, rows?)
        }
        _ => {
            let table: Vec<u8> = (0..1000 * 64u16)
                .flat_map(|x| f32::from(x).to_le_bytes())
                .collect();
            std::fs::write(temporary.path(), table)?;
            (temporary.path().to_owned(), 64, vec![999, 0, 41, 0])
        }
    };
    let rt = Runtime::global()?;
    let table = rt.open(path)?;
    let mut values = vec![0f32; rows.len() * floats];
    let report = gather(&rt, &table, &rows, &mut values)?;

    for (row, values) in rows.iter().zip(values.chunks(floats)) {
        println!("row {row}: starts with {:?}", values.first());
    }
    println!("{} bytes in {:?}", report.bytes, report.elapsed);
    for route in Route::ALL {
        match (report.route(route), report.reason(route)) {
            (Some(used), _) => println!("{route}: {} bytes in {} operations", used.bytes, used.ops),
            (None, Some(reason)) => println!("{route}: not taken: {reason}"),
            (None, None) => {}
        }
    }
    Ok(())
}

/// By way of a GPU, if there is one. What a kernel would work on is copied back, to be shown.
fn gather(rt: &Runtime, table: &Mmap, rows: &[u64], values: &mut [f32]) -> Result<Report, Error> {
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(values);
    let row_bytes = (bytes.len() / rows.len().max(1)) as u64;
    let gpu = match rt.device(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("into host memory: {error}");
            return table.gather_rows(rows, row_bytes, bytes);
        }
    };
    println!("into the memory of {}", gpu.name()?);
    let mut there = gpu.alloc(bytes.len() as u64)?;
    let report = table.gather_rows(rows, row_bytes, &mut there)?;
    there.copy_to_host(0, bytes)?;
    Ok(report)
}
