// Arguments of Rust. test_walk_arguments.py knows the values.
use std::io::Write;

pub enum Shape {
    Circle(f64),
    Square(u32),
    Rectangle { width: f32, height: u8 },
    Empty,
}
pub enum Kind {
    Plain,
    Boxed(Box<i32>),
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
        _ => 0,
    };
    a + b as i64 + c as i64 + d as i64 + s.len() as i64 + shape + p.x as i64 + p.y as i64
}

#[inline(never)]
fn choose(o: Option<u32>, n: Option<&u32>, w: Option<&u32>, b: Option<bool>, r: Result<u8, i64>, e: Result<u8, i64>) -> i64 {
    let rectangle = Shape::Rectangle { width: 1.5, height: 3 };
    let inner = shapes(rectangle, Shape::Circle(2.5), Shape::Empty, Kind::Plain, Kind::Boxed(Box::new(7)), Some(Some(5)));
    inner + o.unwrap_or(0) as i64 + n.map_or(0, |x| *x as i64) + w.map_or(0, |x| *x as i64) + b.map_or(0, |x| x as i64)
        + r.unwrap_or(0) as i64 + e.unwrap_or(0) as i64
}

#[inline(never)]
fn shapes(a: Shape, c: Shape, u: Shape, k: Kind, x: Kind, t: Option<Option<u16>>) -> i64 {
    let area = |shape: &Shape| match shape {
        Shape::Circle(f) => *f as i64,
        Shape::Square(n) => *n as i64,
        Shape::Rectangle { width, height } => (*width * *height as f32) as i64,
        Shape::Empty => 0,
    };
    let kind = |kind: &Kind| match kind {
        Kind::Plain => 0,
        Kind::Boxed(number) => **number as i64,
    };
    let before = area(&a) + area(&c) + area(&u) + kind(&k) + kind(&x) + t.flatten().unwrap_or(0) as i64;
    let argument = std::hint::black_box(before) - before - 8;
    leaf(argument, 200, 'q', true, "text", Shape::Square(3), Point { x: -5, y: 6 })
        + area(&a) + area(&c) + area(&u) + kind(&k) + kind(&x)
}

fn main() {
    let seven = std::hint::black_box(7);
    std::process::exit(choose(Some(seven - 4), Some(&seven), None, None, Err(-9), Ok(1)) as i32)
}
