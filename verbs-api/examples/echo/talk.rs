//! The two ends of an echo, on any provider that has a connection manager.

use std::net::SocketAddr;
use std::time::Duration;

use verbs_api::*;

pub type Failure = Box<dyn std::error::Error>;

const MESSAGE_BYTES_MAX: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(10);

/// Do what the command line says.
pub fn run<M: ConnectionManager>(cm: &M, arguments: &[&str]) -> Result<(), Failure> {
    match arguments {
        ["server", address] => serve(cm, address.parse()?, None),
        // So many clients, and no more: for tests.
        ["server", address, clients] => serve(cm, address.parse()?, Some(clients.parse()?)),
        ["client", address, text] => {
            println!("{}", ask(cm, address.parse()?, text)?);
            Ok(())
        }
        _ => Err("usage: server ADDRESS:PORT [CLIENTS] | client ADDRESS:PORT TEXT".into()),
    }
}

/// A connected queue pair with a buffer for a message.
struct Endpoint<P: Provider> {
    qp: P::Qp,
    cq: P::Cq,
    buffer: Buffer,
    mr: P::Mr,
}

impl<P: Provider> Endpoint<P> {
    fn new(context: &P::Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(&CqInit::new(16))?;
        let qp = pd.create_qp(&QpInit::rc(&cq))?;
        let buffer = Buffer::new(MESSAGE_BYTES_MAX);
        let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE)?;
        Ok(Endpoint { qp, cq, buffer, mr })
    }

    fn sge(&self, length: usize) -> [Sge; 1] {
        [Sge {
            addr: self.buffer.addr(),
            length: length as u32,
            lkey: self.mr.lkey(),
        }]
    }

    fn post_receive(&self) -> Result<()> {
        let posted = self.qp.post_recv(&[RecvWr {
            wr_id: 1,
            sges: &self.sge(MESSAGE_BYTES_MAX),
        }]);
        posted.map_err(|refused| refused.error)
    }

    fn send(&self, length: usize) -> Result<()> {
        let sges = self.sge(length);
        let mut request = SendWr::new(2, SendOp::Send { imm: None }, &sges);
        request.flags = SendFlags::SIGNALED;
        self.qp.post_send(&[request]).map_err(|refused| refused.error)
    }

    /// The next completion.
    fn completion(&self) -> Result<Wc, Failure> {
        let mut wc = [Wc::default()];
        while self.cq.poll(&mut wc)? == 0 {
            std::thread::yield_now();
        }
        match wc[0].status {
            WcStatus::Success => Ok(wc[0]),
            status => Err(format!("the work request failed: {status:?}").into()),
        }
    }
}

type Connection<M> = (
    <M as ConnectionManager>::Id,
    Endpoint<<M as ConnectionManager>::P>,
);

fn serve<M: ConnectionManager>(cm: &M, address: SocketAddr, clients: Option<u32>) -> Result<(), Failure> {
    let listener = cm.create_id(CmPortSpace::Tcp, 0)?;
    listener.bind_addr(address)?;
    listener.listen(16)?;
    println!("listening on {address}");
    // Connections that go on, by the cookies of their ids.
    let mut connections: Vec<Option<Connection<M>>> = Vec::new();
    let mut served = 0;
    while clients.is_none_or(|clients| served < clients) {
        let Some(mut event) = cm.wait(None)? else { continue };
        let cookie = event.cookie as usize;
        match event.kind {
            CmEventKind::ConnectRequest => {
                let Some(id) = event.request.take() else { continue };
                let context = id.context().ok_or("a request without a device")?;
                let endpoint = Endpoint::new(&context)?;
                id.bind_qp(&endpoint.qp)?;
                // Before the peer can send.
                endpoint.post_receive()?;
                connections.push(None);
                id.set_cookie(connections.len() as u64);
                id.accept(None)?;
                *connections.last_mut().expect("one was pushed") = Some((id, endpoint));
            }
            CmEventKind::Established => {
                let Some(Some((_, endpoint))) = connections.get(cookie.wrapping_sub(1)) else {
                    continue;
                };
                let received = endpoint.completion()?;
                endpoint.send(received.byte_len as usize)?;
                endpoint.completion()?;
            }
            CmEventKind::Disconnected => {
                if let Some(Some((id, _))) = connections.get_mut(cookie.wrapping_sub(1)).map(Option::take) {
                    id.disconnect()?;
                    served += 1;
                }
            }
            other => println!("{other:?}, status {}", event.status),
        }
    }
    Ok(())
}

fn ask<M: ConnectionManager>(cm: &M, address: SocketAddr, text: &str) -> Result<String, Failure> {
    let expect = |kind: CmEventKind| match cm.wait(Some(PATIENCE))? {
        Some(event) if event.kind == kind => Ok(()),
        Some(event) => Err(Failure::from(format!(
            "{:?}, status {}",
            event.kind, event.status
        ))),
        None => Err("no answer".into()),
    };
    let id = cm.create_id(CmPortSpace::Tcp, 0)?;
    id.resolve_addr(None, address, PATIENCE)?;
    expect(CmEventKind::AddrResolved)?;
    id.resolve_route(PATIENCE)?;
    expect(CmEventKind::RouteResolved)?;
    let context = id.context().ok_or("a resolved id has a device")?;
    let endpoint = Endpoint::<M::P>::new(&context)?;
    id.bind_qp(&endpoint.qp)?;
    endpoint.post_receive()?;
    id.connect(&ConnectionParameters {
        retry_count: 7,
        rnr_retry_count: 7,
        ..ConnectionParameters::default()
    })?;
    expect(CmEventKind::Established)?;
    // One buffer serves both ways here: the answer is what was sent.
    endpoint.buffer.write(0, text.as_bytes());
    endpoint.send(text.len())?;
    let mut answer = None;
    for _ in 0..2 {
        let wc = endpoint.completion()?;
        if wc.wr_id == 1 {
            let mut bytes = vec![0; wc.byte_len as usize];
            endpoint.buffer.read(0, &mut bytes);
            answer = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    id.disconnect()?;
    expect(CmEventKind::Disconnected)?;
    answer.ok_or_else(|| "no answer".into())
}
