//! The table of connections' states: what each message, command and time-out does in each (IBA 12.9.7).
//!
//! Pure: [`step`] says what is to be done, and the agent does it.

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A request is out.
    ReqSent,
    /// The peer wants patience with the request.
    MraReqReceived,
    /// The peer has replied; the program has the word.
    RepReceived,
    /// The same, and the peer was asked for patience.
    MraRepSent,
    /// A peer asks; the program has the word.
    ReqReceived,
    /// The same, and the peer was asked for patience.
    MraReqSent,
    /// A reply is out.
    RepSent,
    /// The peer wants patience with the reply.
    MraRepReceived,
    /// Both are ready.
    Established,
    /// A disconnect request is out.
    DreqSent,
    /// The peer has asked to disconnect; the program has the word.
    DreqReceived,
    /// Over; packets may still be under way.
    Timewait,
    /// A service of datagrams is asked for.
    SidrReqSent,
    /// A peer asks for a service of datagrams; the program has the word.
    SidrReqReceived,
    /// It was answered; the answer may have to be sent again.
    SidrAnswered,
    /// Gone.
    Closed,
}

impl State {
    /// All of them.
    pub const ALL: [State; 16] = [
        Self::ReqSent,
        Self::MraReqReceived,
        Self::RepReceived,
        Self::MraRepSent,
        Self::ReqReceived,
        Self::MraReqSent,
        Self::RepSent,
        Self::MraRepReceived,
        Self::Established,
        Self::DreqSent,
        Self::DreqReceived,
        Self::Timewait,
        Self::SidrReqSent,
        Self::SidrReqReceived,
        Self::SidrAnswered,
        Self::Closed,
    ];

    /// Whether a listener's backlog counts it.
    pub(crate) const fn waits_for_program(self) -> bool {
        matches!(self, Self::ReqReceived | Self::MraReqSent | Self::SidrReqReceived)
    }

    /// What the clock does in this state.
    pub(crate) const fn timer(self) -> Timer {
        match self {
            Self::ReqSent | Self::RepSent | Self::DreqSent | Self::SidrReqSent => Timer::Retry,
            Self::MraReqReceived | Self::MraRepReceived => Timer::Patience,
            Self::Timewait | Self::SidrAnswered => Timer::Wait,
            Self::RepReceived
            | Self::MraRepSent
            | Self::ReqReceived
            | Self::MraReqSent
            | Self::Established
            | Self::DreqReceived
            | Self::SidrReqReceived
            | Self::Closed => Timer::Off,
        }
    }
}

/// What the clock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Nothing.
    Off,
    /// The last message is sent again, so and so often.
    Retry,
    /// The same, after the time that the peer has asked for.
    Patience,
    /// The state ends.
    Wait,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// The program replies to a request.
    Reply,
    /// The program refuses a request or a reply.
    Reject,
    /// The program is ready.
    Ready,
    /// The program needs time.
    Delay,
    /// The program saw data of the peer's before its last message.
    Establish,
    /// The program disconnects.
    Disconnect,
    /// The program answers about a service of datagrams.
    Answer,
    /// The program does not care any more.
    Destroy,
    /// The request again.
    Req,
    /// The peer's queue pair is being connected anew.
    Stale,
    MraOfReq,
    MraOfRep,
    Rej,
    /// A rejection since our queue pair is connected already, as far as the peer knows.
    RejStale,
    Rep,
    Rtu,
    Dreq,
    Drep,
    Lap,
    Apr,
    SidrReq,
    SidrRep,
    /// No answer came, and there are repetitions left.
    Overdue,
    /// No answer came to the last repetition.
    Exhausted,
    /// The state's time is over.
    Elapsed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The command is an error in this state.
    Refuse,
    /// The message means nothing.
    Ignore,
    /// Send, tell, and go to a state.
    Do { send: Send, tell: Tell, next: State },
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    Nothing,
    /// The last message.
    Again,
    /// What the command says.
    Command,
    Mra,
    /// A rejection of the peer's message by the program.
    Rej,
    /// "I have waited long enough."
    RejTimeout,
    /// "Your queue pair is connected already."
    RejStale,
    Dreq,
    Drep,
    /// "There are no alternate paths here."
    Apr,
    /// "No."
    SidrRefusal,
}

/// What the owner is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    Nothing,
    Replied,
    Established,
    Rejected,
    Unreachable,
    Disconnected,
    TimewaitExit,
    Resolved,
}

const fn go(send: Send, tell: Tell, next: State) -> Step {
    Step::Do { send, tell, next }
}

/// See the module's documentation.
pub(crate) fn step(state: State, input: Input) -> Step {
    match state {
        State::ReqSent | State::MraReqReceived => requesting(state, input),
        State::RepReceived | State::MraRepSent => replied(state, input),
        State::ReqReceived | State::MraReqSent => requested(state, input),
        State::RepSent | State::MraRepReceived => replying(state, input),
        State::Established => established(input),
        State::DreqSent => disconnecting(input),
        State::DreqReceived => disconnected(input),
        State::Timewait => timewait(input),
        State::SidrReqSent | State::SidrReqReceived | State::SidrAnswered => datagram(state, input),
        State::Closed => other(input),
    }
}

/// What a state has no line for: commands are errors, messages mean nothing.
fn other(input: Input) -> Step {
    match input {
        Input::Reply
        | Input::Reject
        | Input::Ready
        | Input::Delay
        | Input::Establish
        | Input::Disconnect
        | Input::Answer => Step::Refuse,
        Input::Destroy
        | Input::Req
        | Input::Stale
        | Input::MraOfReq
        | Input::MraOfRep
        | Input::Rej
        | Input::RejStale
        | Input::Rep
        | Input::Rtu
        | Input::Dreq
        | Input::Drep
        | Input::Lap
        | Input::Apr
        | Input::SidrReq
        | Input::SidrRep
        | Input::Overdue
        | Input::Exhausted
        | Input::Elapsed => Step::Ignore,
    }
}

fn requesting(state: State, input: Input) -> Step {
    match input {
        Input::Rep => go(Send::Nothing, Tell::Replied, State::RepReceived),
        Input::MraOfReq if state == State::ReqSent => go(Send::Nothing, Tell::Nothing, State::MraReqReceived),
        Input::Rej => go(Send::Nothing, Tell::Rejected, State::Closed),
        Input::RejStale => go(Send::Nothing, Tell::Rejected, State::Timewait),
        Input::Overdue => go(Send::Again, Tell::Nothing, State::ReqSent),
        Input::Exhausted => go(Send::Nothing, Tell::Unreachable, State::Closed),
        Input::Destroy => go(Send::RejTimeout, Tell::Nothing, State::Closed),
        _ => other(input),
    }
}

fn replied(state: State, input: Input) -> Step {
    match input {
        Input::Ready => go(Send::Command, Tell::Nothing, State::Established),
        Input::Reject => go(Send::Command, Tell::Nothing, State::Timewait),
        Input::Delay => go(Send::Command, Tell::Nothing, State::MraRepSent),
        Input::Rep if state == State::MraRepSent => go(Send::Again, Tell::Nothing, State::MraRepSent),
        Input::Rej | Input::RejStale => go(Send::Nothing, Tell::Rejected, State::Timewait),
        Input::Destroy => go(Send::Rej, Tell::Nothing, State::Timewait),
        _ => other(input),
    }
}

fn requested(state: State, input: Input) -> Step {
    match input {
        Input::Reply => go(Send::Command, Tell::Nothing, State::RepSent),
        Input::Reject => go(Send::Command, Tell::Nothing, State::Closed),
        Input::Delay => go(Send::Command, Tell::Nothing, State::MraReqSent),
        // The program takes its time: the peer should not give up.
        Input::Req if state == State::ReqReceived => go(Send::Mra, Tell::Nothing, State::MraReqSent),
        Input::Req => go(Send::Again, Tell::Nothing, State::MraReqSent),
        Input::Rej | Input::RejStale => go(Send::Nothing, Tell::Rejected, State::Closed),
        Input::Destroy => go(Send::Rej, Tell::Nothing, State::Closed),
        _ => other(input),
    }
}

fn replying(state: State, input: Input) -> Step {
    match input {
        Input::Rtu | Input::Establish => go(Send::Nothing, Tell::Established, State::Established),
        Input::MraOfRep if state == State::RepSent => go(Send::Nothing, Tell::Nothing, State::MraRepReceived),
        Input::Rej => go(Send::Nothing, Tell::Rejected, State::Closed),
        Input::RejStale => go(Send::Nothing, Tell::Rejected, State::Timewait),
        // Its last message was lost.
        Input::Dreq => go(Send::Nothing, Tell::Disconnected, State::DreqReceived),
        Input::Reject => go(Send::Command, Tell::Nothing, State::Timewait),
        Input::Disconnect => go(Send::Command, Tell::Nothing, State::DreqSent),
        Input::Stale => go(Send::Dreq, Tell::Nothing, State::DreqSent),
        // The peer may be ready already.
        Input::Destroy => go(Send::Dreq, Tell::Nothing, State::DreqSent),
        Input::Overdue => go(Send::Again, Tell::Nothing, State::RepSent),
        Input::Exhausted => go(Send::Nothing, Tell::Unreachable, State::Timewait),
        _ => other(input),
    }
}

fn established(input: Input) -> Step {
    match input {
        // Our last message was lost.
        Input::Rep => go(Send::Again, Tell::Nothing, State::Established),
        Input::Disconnect => go(Send::Command, Tell::Nothing, State::DreqSent),
        Input::Dreq => go(Send::Nothing, Tell::Disconnected, State::DreqReceived),
        Input::Rej | Input::RejStale => go(Send::Nothing, Tell::Disconnected, State::Timewait),
        Input::Stale | Input::Destroy => go(Send::Dreq, Tell::Nothing, State::DreqSent),
        Input::Lap => go(Send::Apr, Tell::Nothing, State::Established),
        Input::Establish => go(Send::Nothing, Tell::Nothing, State::Established),
        _ => other(input),
    }
}

fn disconnecting(input: Input) -> Step {
    match input {
        Input::Drep | Input::Rej | Input::RejStale => go(Send::Nothing, Tell::Disconnected, State::Timewait),
        // Both have asked: that is agreement.
        Input::Dreq => go(Send::Drep, Tell::Disconnected, State::Timewait),
        Input::Overdue => go(Send::Again, Tell::Nothing, State::DreqSent),
        Input::Exhausted => go(Send::Nothing, Tell::Disconnected, State::Timewait),
        Input::Disconnect | Input::Destroy => go(Send::Nothing, Tell::Nothing, State::DreqSent),
        _ => other(input),
    }
}

fn disconnected(input: Input) -> Step {
    match input {
        Input::Disconnect => go(Send::Command, Tell::Nothing, State::Timewait),
        Input::Destroy => go(Send::Drep, Tell::Nothing, State::Timewait),
        Input::Drep => go(Send::Nothing, Tell::Nothing, State::Timewait),
        _ => other(input),
    }
}

fn timewait(input: Input) -> Step {
    match input {
        // Our answer was lost.
        Input::Dreq => go(Send::Drep, Tell::Nothing, State::Timewait),
        Input::Req => go(Send::RejStale, Tell::Nothing, State::Timewait),
        Input::Disconnect | Input::Destroy => go(Send::Nothing, Tell::Nothing, State::Timewait),
        Input::Elapsed => go(Send::Nothing, Tell::TimewaitExit, State::Closed),
        _ => other(input),
    }
}

fn datagram(state: State, input: Input) -> Step {
    match (state, input) {
        (State::SidrReqSent, Input::SidrRep) => go(Send::Nothing, Tell::Resolved, State::Closed),
        (State::SidrReqSent, Input::Overdue) => go(Send::Again, Tell::Nothing, State::SidrReqSent),
        (State::SidrReqSent, Input::Exhausted) => go(Send::Nothing, Tell::Unreachable, State::Closed),
        (State::SidrReqSent, Input::Destroy) => go(Send::Nothing, Tell::Nothing, State::Closed),
        (State::SidrReqReceived, Input::Answer) => go(Send::Command, Tell::Nothing, State::SidrAnswered),
        (State::SidrReqReceived, Input::Destroy) => go(Send::SidrRefusal, Tell::Nothing, State::SidrAnswered),
        (State::SidrAnswered, Input::SidrReq) => go(Send::Again, Tell::Nothing, State::SidrAnswered),
        (State::SidrAnswered, Input::Elapsed) => go(Send::Nothing, Tell::Nothing, State::Closed),
        (State::SidrAnswered, Input::Destroy) => go(Send::Nothing, Tell::Nothing, State::SidrAnswered),
        _ => other(input),
    }
}

#[cfg(test)]
mod tests;
