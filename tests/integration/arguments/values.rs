// Arguments of Rust. test_walk_arguments.py knows the values.
use std::io::Write;

pub enum Shape {
    Circle(f64),
    Square(u32),
}
pub struct Point {
    x: i32,
    y: u8,
}

#[inline(never)]
fn stop() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::sleep(std::time::Duration::from_secs(100));
    }
}

#[inline(never)]
fn leaf(a: i64, b: u8, c: char, d: bool, s: &str, sh: Shape, p: Point) -> i64 {
    if a != 0 {
        stop();
    }
    let shape = match sh {
        Shape::Circle(f) => f as i64,
        Shape::Square(n) => n as i64,
    };
    a + b as i64 + c as i64 + d as i64 + s.len() as i64 + shape + p.x as i64 + p.y as i64
}

fn main() {
    let a = std::env::args().count() as i64;
    std::process::exit(leaf(a - 10, 200, 'q', true, "text", Shape::Square(3), Point { x: -5, y: 6 }) as i32)
}
