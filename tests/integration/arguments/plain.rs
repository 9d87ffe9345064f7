// Arguments of Rust: integers of all sizes, slices, tuples, arrays, plain enumerations. test_arguments_beside_gdb.py
// compares them.
use std::io::Write;

#[derive(Clone, Copy)]
pub enum Plain {
    Red = 1,
    Green = 200,
}
pub struct Pair {
    a: i16,
    b: u64,
}
pub struct Unit;

#[inline(never)]
fn stop() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::sleep(std::time::Duration::from_secs(100));
    }
}

#[inline(never)]
fn integers(a: i8, b: u8, c: i16, d: u16, e: i32, f: u32, g: i64, h: u64, i: i128, j: u128, k: isize, l: usize) -> i64 {
    if a != 0 {
        stop();
    }
    a as i64 + b as i64 + c as i64 + d as i64 + e as i64 + f as i64 + g + h as i64 + i as i64 + j as i64 + k as i64 + l as i64
}

#[inline(never)]
fn others(a: f32, b: f64, c: bool, d: Plain, e: (u8, i32), f: [i16; 4], g: &[u8], h: &Pair, i: *const u32, j: Pair) -> i64 {
    let r = integers(-1, 255, -300, 60000, -70000, 4000000000, -5000000000, 18000000000000000000, -(1 << 100), 1 << 127, -9, 10);
    r + a as i64 + b as i64 + c as i64 + d as i64 + e.0 as i64 + e.1 as i64 + f[1] as i64 + g[0] as i64 + h.a as i64
        + (i.is_null() as i64) + j.b as i64 + h.b as i64 + j.a as i64
}

#[inline(never)]
fn by_value(unit: Unit, nested: ((u8, bool), f64), text: &str, flag: u8) -> i64 {
    let _ = unit;
    let bytes = [1u8, 2, 3];
    let number = std::hint::black_box(5u32);
    others(0.1, 2.5, flag != 0, Plain::Green, (3, -4), [1, -2, 3, -4], &bytes, &Pair { a: -5, b: 6 }, &number, Pair { a: 7, b: 8 })
        + nested.1 as i64 + nested.0 .0 as i64 + text.len() as i64 + number as i64
}

fn main() {
    let one = std::hint::black_box(1u8);
    let other = if one == 0 { Plain::Red } else { Plain::Green };
    std::process::exit(by_value(Unit, ((one, true), 1.5), "text", one + other as u8) as i32)
}
