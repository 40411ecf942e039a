//! JSON objects, one a line, over TCP. Each has a `type`, which the receiver must expect.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long the other end may be silent, or not be there yet.
const LIMIT: Duration = Duration::from_secs(120);
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// One end of the connection.
#[derive(Debug)]
pub struct Line {
    reader: BufReader<TcpStream>,
}

impl Line {
    /// Waits for `count` callers.
    pub fn listen(address: SocketAddr, count: usize) -> Result<Vec<Line>> {
        let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        (0..count).map(|_| Line::new(listener.accept()?.0)).collect()
    }

    /// Calls the other end, which may still be starting.
    pub fn call(address: SocketAddr) -> Result<Line> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match TcpStream::connect_timeout(&address, LIMIT) {
                Ok(stream) => return Line::new(stream),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).with_context(|| format!("cannot call {address}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn new(stream: TcpStream) -> Result<Line> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Line {
            reader: BufReader::new(stream),
        })
    }

    /// The own address, through which the other end is reached.
    pub fn local_ip(&self) -> Result<IpAddr> {
        Ok(self.reader.get_ref().local_addr()?.ip().to_canonical())
    }

    /// Says something without fields.
    pub fn tell(&mut self, kind: &str) -> Result<()> {
        self.tell_with(kind, json!({}))
    }

    /// Says something; `fields` is an object.
    pub fn tell_with(&mut self, kind: &str, mut fields: Value) -> Result<()> {
        fields["type"] = kind.into();
        let text = format!("{fields}\n");
        self.reader
            .get_mut()
            .write_all(text.as_bytes())
            .with_context(|| format!("telling `{kind}`"))
    }

    /// As [`Line::hear`], for as long as the other end lives: it may be busy for long.
    pub fn hear_at_last(&mut self, kind: &str) -> Result<Value> {
        self.reader.get_ref().set_read_timeout(None)?;
        let heard = self.hear(kind);
        self.reader.get_ref().set_read_timeout(Some(LIMIT))?;
        heard
    }

    /// Waits for what the other end says next, which must be of this kind.
    pub fn hear(&mut self, kind: &str) -> Result<Value> {
        let said = self.hear_any().with_context(|| format!("waiting for `{kind}`"))?;
        if said["type"] != kind {
            bail!("the peer said {said}, `{kind}` was expected");
        }
        Ok(said)
    }

    /// Waits for what the other end says next.
    pub fn hear_any(&mut self) -> Result<Value> {
        let mut text = String::new();
        let length = (&mut self.reader).take(LINE_BYTES_MAX).read_line(&mut text)?;
        if length == 0 {
            bail!("the peer went away");
        }
        serde_json::from_str(&text).with_context(|| format!("the peer said {text:?}"))
    }
}
