//! The device under test at the other end of a TCP connection: one JSON value a line, question and answer.
//!
//! An agent does what whoever connects asks of its device: registers memory, makes queue pairs, reads and writes the
//! regions made for the script. It touches nothing else, but serve only networks that you trust.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbs_api::{Error, Provider};

use crate::call::{Call, Reply};
use crate::dut::LocalDut;

/// The longest line: a region's bytes as JSON numbers, and room.
const LONGEST_LINE: u64 = 1 << 24;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(60);

/// What an agent says first.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// Which language it speaks.
    drill: u32,
    /// The device's GID.
    gid: [u8; 16],
}

/// The version of the questions and answers.
const VERSION: u32 = 1;

/// Serves a device, one script after another.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
}

impl Agent {
    /// Listens.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Agent {
            listener: TcpListener::bind(address)?,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves the next script: `open` gives it the device, fresh.
    pub fn serve_one<P: Provider>(
        &self,
        open: impl FnOnce() -> Result<LocalDut<P>, Error>,
    ) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        let mut dut = open().map_err(io::Error::other)?;
        let mut lines = Lines::new(stream)?;
        lines.write(&Hello {
            drill: VERSION,
            gid: dut.gid().0,
        })?;
        while let Some(call) = lines.read::<Call>()? {
            let reply = dut.call(&call);
            lines.write(&reply)?;
        }
        Ok(())
    }
}

/// A device under test behind an agent.
#[derive(Debug)]
pub struct RemoteDut {
    lines: Lines,
    gid: [u8; 16],
}

impl RemoteDut {
    /// Connects to an agent.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut lines = Lines::new(stream)?;
        let hello: Hello = lines.read()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if hello.drill != VERSION {
            return Err(io::Error::other(format!(
                "the agent speaks version {}, this is {VERSION}: use the same softroce at both ends",
                hello.drill
            )));
        }
        Ok(RemoteDut {
            lines,
            gid: hello.gid,
        })
    }

    /// The device's GID.
    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }

    /// Asks and waits for the answer.
    pub fn call(&mut self, call: &Call) -> io::Result<Reply> {
        self.lines.write(call)?;
        let gone = || {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the agent of the device under test has gone",
            )
        };
        self.lines.read()?.ok_or_else(gone)
    }
}

#[derive(Debug)]
struct Lines {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Lines {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Lines {
            writer: stream.try_clone()?,
            reader: BufReader::new(stream),
        })
    }

    fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.writer.write_all(&line)
    }

    /// `None` when the other end has closed.
    fn read<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let mut line = Vec::new();
        self.reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
