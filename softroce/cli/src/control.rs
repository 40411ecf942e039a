//! The control connection: two processes exchange addresses and settings over TCP, one JSON value a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// How long the other end may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest line accepted.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Characters of a line that an error quotes.
const EXCERPT_CHARS: usize = 80;

/// The beginning of a line.
fn excerpt(line: &str) -> &str {
    line.char_indices()
        .nth(EXCERPT_CHARS)
        .map_or(line, |(end, _)| &line[..end])
}

/// What the connection holds that was not read yet.
enum Peeked {
    Nothing,
    Word,
    End,
}

/// The first word of both ends: which command each runs.
#[derive(Serialize, Deserialize)]
struct Hello {
    softroce: String,
}

/// One end of the control connection.
pub struct Control {
    reader: BufReader<TcpStream>,
    last_look: Instant,
}

impl Control {
    /// Wait for a client that runs the same `command`, on all addresses of this host.
    pub fn accept(port: u16, command: &str) -> Result<Self> {
        let listener = TcpListener::bind(("::", port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
            .with_context(|| format!("cannot listen on TCP port {port}; choose another with --port"))?;
        let (stream, _) = listener.accept().context("waiting for a client")?;
        Control::new(stream, command)
    }

    /// Connect to a server that runs the same `command`; it may still be starting.
    pub fn connect(host: &str, port: u16, command: &str) -> Result<Self> {
        let addresses: Vec<_> = (host, port)
            .to_socket_addrs()
            .with_context(|| format!("{host:?} is neither an address nor a known host name"))?
            .collect();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let mut last = None;
            for address in &addresses {
                match TcpStream::connect_timeout(address, Duration::from_secs(3)) {
                    Ok(stream) => return Control::new(stream, command),
                    Err(error) => last = Some(error),
                }
            }
            let error = last.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound));
            if error.kind() != io::ErrorKind::ConnectionRefused || Instant::now() > deadline {
                return Err(error).with_context(|| {
                    format!("no server answers at {host} port {port}; start one there with the same command without HOST")
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn new(stream: TcpStream, command: &str) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut control = Control {
            reader: BufReader::new(stream),
            last_look: Instant::now(),
        };
        control.send(&Hello {
            softroce: command.to_owned(),
        })?;
        let theirs: Hello = control.receive()?;
        if theirs.softroce != command {
            bail!(
                "this end is `softroce {command}`, and the other one `softroce {}`; start the same command at both ends",
                excerpt(&theirs.softroce)
            );
        }
        Ok(control)
    }

    /// The own address on this connection: the device that a peer reaches us through.
    pub fn local_ip(&self) -> Result<IpAddr> {
        Ok(self.reader.get_ref().local_addr()?.ip().to_canonical())
    }

    /// Send a value.
    pub fn send<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.reader
            .get_mut()
            .write_all(&line)
            .context("the peer has vanished")
    }

    /// Wait for a value.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let read = (&mut self.reader).take(LINE_BYTES_MAX).read_line(&mut line);
        match read {
            Ok(0) => bail!("the peer has vanished; if it was refused something, it has told why"),
            Ok(_) => serde_json::from_str(&line)
                .with_context(|| format!("the peer speaks another protocol: {:?}", excerpt(&line))),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                bail!("the peer has not answered for {} s", ANSWER_TIMEOUT.as_secs())
            }
            Err(error) => Err(error).context("the peer has vanished"),
        }
    }

    /// Wait for a value for as long as the peer lives: it is measuring.
    pub fn receive_unhurried<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.reader.get_ref().set_read_timeout(None)?;
        let value = self.receive();
        self.reader.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT))?;
        value
    }

    /// Whether the peer has said something that was not received yet; also when it has closed the connection.
    pub fn has_word(&self) -> Result<bool> {
        if !self.reader.buffer().is_empty() {
            return Ok(true);
        }
        Ok(!matches!(self.peek()?, Peeked::Nothing))
    }

    fn peek(&self) -> Result<Peeked> {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true)?;
        let looked = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        match looked {
            Ok(0) => Ok(Peeked::End),
            Ok(_) => Ok(Peeked::Word),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Peeked::Nothing),
            Err(error) => Err(error).context("the peer has vanished"),
        }
    }

    /// An error when the peer has closed the connection before its time. Cheap: it looks at most 20 times a second.
    pub fn check_peer(&mut self) -> Result<()> {
        if self.last_look.elapsed() < Duration::from_millis(50) {
            return Ok(());
        }
        self.last_look = Instant::now();
        if !self.reader.buffer().is_empty() {
            return Ok(());
        }
        match self.peek()? {
            Peeked::End => bail!("the peer has vanished"),
            Peeked::Word | Peeked::Nothing => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EXCERPT_CHARS, excerpt};

    #[test]
    fn an_error_quotes_only_the_beginning_of_a_line() {
        assert_eq!(excerpt("GET /\r\n"), "GET /\r\n");
        assert_eq!(excerpt(&"é".repeat(60_000)).chars().count(), EXCERPT_CHARS);
    }
}
