package queue

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/quota"
)

// Class is the priority class of a job: a caller is connected, a caller submitted it as a
// job, or it belongs to a batch.
type Class uint8

// The classes in the order in which they are served. Async comes first in one turn of ten
// and Batch in one of twenty, so that neither starves.
const (
	Interactive Class = 1 + iota
	Async
	Batch
)

var classNames = [...]string{Interactive: "interactive", Async: "async", Batch: "batch"}

// String returns the name used in keys and metrics.
func (c Class) String() string {
	if c < Interactive || c > Batch {
		return "class(" + strconv.Itoa(int(c)) + ")"
	}
	return classNames[c]
}

// State is the state of a job.
type State string

// The states. A job goes from queued to running, back to queued if its attempt ends without
// an outcome, and once into one of the other four.
const (
	Queued    State = "queued"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Expired   State = "expired"
)

// Terminal reports whether a job in this state has ended.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == Cancelled || s == Expired
}

// Job is a queued request without its body. The caller of Put sets the first block of
// fields; the queue maintains the second. A Job is a copy: changing it does not affect the
// queue.
type Job struct {
	ID, Pool, Org, User, Key, CallID string
	// Born and UserBorn distinguish the key and the user from earlier ones with their ids.
	Born, UserBorn string

	Class    Class
	Endpoint wire.Endpoint
	Model    string
	// Stream means the answer is a stream of events. A started attempt of an
	// interactive stream is not retried once it has recorded output.
	Stream bool
	// Tokens is the call's estimate, booked on the pool's TPM; Cost and Held are its hold, of tokens too. A
	// Held of 0 is as many as Tokens.
	Tokens int64
	Cost   pricing.Nano
	Held   int64
	// Answer is the AnswerBytes of its call when it is put; 0 if unknown.
	Answer int64
	// Priority is that of the call. Its jobs of higher priority get more turns of the
	// user, and the user more turns of the org.
	Priority quota.Priority
	// ByDeadline serves the job by its Deadline: before the user's other jobs of the
	// same priority, earliest first.
	ByDeadline bool
	// Notice, if not empty, makes Announce report the job's end and is passed along
	// with it; the queue does not interpret it. It must not contain line breaks.
	Notice string
	// IP is the caller's address, for limits per address.
	IP string
	// Labels are those of the call.
	Labels ledger.Labels
	// Run is the run that the call belongs to, if any.
	Run ledger.RunPath
	// Batch is the batch that the job is a line of, if any.
	Batch string
	// Header holds the few request headers to forward, Query the raw query.
	Header http.Header
	Query  string
	// Trace is the caller's trace, which the job's runs continue; see tracing.Context.
	// If it is empty, each run starts its own.
	Trace string

	// State is the current state; Code says why a job ended without success.
	State State
	Code  string
	// Cancelling means the job was cancelled but has not ended yet; see Queue.Cancel.
	Cancelling bool
	// Attempt numbers the latest start; dead attempts keep their number. Tries counts
	// the starts that count against Options.MaxAttempts.
	Attempt, Tries int
	// Retries counts the attempts that failed at the provider. Again is when the next
	// one may begin; it is meaningful only while the job waits.
	Retries int
	Again   time.Time
	// Cause is what last made the job wait. WaitCause and WaitAt are the cause and time as
	// which its wait is counted; the time is zero if it is not, the cause empty if it never was.
	Cause, WaitCause budget.Cause
	WaitAt           time.Time
	// Created, Deadline (the end of waiting), Started (of the latest attempt) and
	// Finished are on Redis's clock; zero if not reached.
	Created, Deadline, Started, Finished time.Time
	// Charged is what the ledger has charged for the job by now.
	Charged pricing.Nano
	// Status and Error are the outcome.
	Status int
	Error  *wire.Error
	// Replay is the id of the job that replays this one; empty if there is none.
	Replay string
	// Origin is the id of the dead letter that this job replays; empty if there is
	// none.
	Origin string
	// Version is the schema version of the record.
	Version int
	// Bytes is the size of the body.
	Bytes int64

	member string // the job's member in the set of waiting jobs
	away   bool   // the body is a blob
}

// Waited returns how long the job waited before its latest attempt, or has waited so far.
func (j *Job) Waited() time.Duration {
	switch {
	case j.Created.IsZero():
		return 0
	case !j.Started.IsZero():
		return j.Started.Sub(j.Created)
	case !j.Finished.IsZero():
		return j.Finished.Sub(j.Created)
	}
	return max(time.Since(j.Created), 0)
}

// schemaVersion is the version that Put writes. Records of a later one are refused.
const schemaVersion = 1

// ErrNewer is returned for a job whose record was written by a newer version of this
// program. Workers leave such a job to newer ones.
var ErrNewer = errors.New("queue: job record of a newer version")

// given returns the fields that Put stores in addition to the script's own.
func (j *Job) given() ([]any, error) {
	given := []any{"call", j.CallID, "endpoint", string(j.Endpoint), "model", j.Model}
	if j.Stream {
		given = append(given, "stream", "1")
	}
	if j.Cost != 0 {
		given = append(given, "cost", int64(j.Cost))
	}
	if j.Held != 0 && j.Held != j.Tokens {
		given = append(given, "held", j.Held)
	}
	for _, field := range [...][2]string{
		{"key", j.Key},
		{"born", j.Born},
		{"user_born", j.UserBorn},
		{"query", j.Query},
		{"ip", j.IP},
		{"labels", string(j.Labels)},
		{"run", string(j.Run)},
		{"batch", j.Batch},
		{"notice", j.Notice},
		{"trace", j.Trace},
		{"origin", j.Origin},
		{"limit", string(j.Cause)},
		{"wait", waitText(j.WaitCause, j.WaitAt)},
	} {
		if field[1] != "" {
			given = append(given, field[0], field[1])
		}
	}
	if len(j.Header) > 0 {
		header, err := json.Marshal(j.Header)
		if err != nil {
			return nil, fmt.Errorf("queue: header of %s: %w", j.ID, err)
		}
		given = append(given, "header", header)
	}
	return given, nil
}

// decodeJob decodes a job's hash. It returns nil if there is no job.
func decodeJob(pool, id string, h map[string]string) (*Job, error) {
	if h["state"] == "" {
		return nil, nil
	}
	n := func(field string) int64 { v, _ := strconv.ParseInt(h[field], 10, 64); return v }
	before := "spent" // what the version before kept in the record
	if h["charged"] != "" {
		before = "charged"
	}
	j := &Job{
		ID: id, Pool: pool, Org: h["org"], User: h["user"], Key: h["key"], Born: h["born"], UserBorn: h["user_born"],
		CallID: h["call"],
		Class:  Class(n("class")), Endpoint: wire.Endpoint(h["endpoint"]), Model: h["model"], Stream: h["stream"] == "1",
		Tokens: n("tokens"), Cost: pricing.Nano(n("cost")), Held: n("held"), Query: h["query"], IP: h["ip"],
		Notice: h["notice"],
		Labels: ledger.Labels(h["labels"]), Run: ledger.RunPath(h["run"]), Batch: h["batch"],
		Trace: h["trace"], Priority: lanePriority(h["lane"]), ByDeadline: h["seq"] > "1" && h["seq"] < "9",
		State: State(h["state"]), Code: h["code"], Attempt: int(n("attempt")), Tries: int(n("tries")),
		Retries: int(n("retries")), Again: instant(h["again"]), Cause: budget.ParseCause(h["limit"]),
		Created: instant(h["created"]), Deadline: instant(h["deadline"]),
		Started: instant(h["started"]), Finished: instant(h["finished"]),
		Charged: pricing.Nano(n(before)), Status: int(n("status")),
		Replay: h["replay"], Origin: h["origin"], Version: int(n("v")), Bytes: n("bytes"), member: memberOf(id, h),
	}
	j.WaitCause, j.WaitAt = parseWait(h["wait"])
	if j.Version > schemaVersion {
		return nil, fmt.Errorf("%w: job %s has version %d, this program knows %d", ErrNewer, id, j.Version, schemaVersion)
	}
	if text := h["header"]; text != "" {
		if err := json.Unmarshal([]byte(text), &j.Header); err != nil {
			return nil, fmt.Errorf("queue: header of %s: %w", id, err)
		}
	}
	if text := h["error"]; text != "" {
		j.Error = new(wire.Error)
		if err := json.Unmarshal([]byte(text), j.Error); err != nil {
			return nil, fmt.Errorf("queue: error of %s: %w", id, err)
		}
	} else {
		j.Error = endError(j.Code)
		if j.Code == "expired" && j.ByDeadline {
			j.Error = DeadlinePassed()
		}
	}
	return j, nil
}

// Call returns the job as limits and the ledger see it.
func (j *Job) Call() ledger.Call {
	return ledger.Call{
		ID: j.CallID, Org: j.Org, User: j.User, Key: j.Key, IP: j.IP, Model: j.Model, Endpoint: string(j.Endpoint),
		JobID: j.ID, Batch: j.Batch, Labels: j.Labels, Run: j.Run,
	}
}

// Refusing describes the job as a call that is refused by what made it wait last.
func (j *Job) Refusing() guard.RefusedCall {
	cause := cmp.Or(j.Cause, budget.NewCause(budget.CausePool, j.Pool))
	return guard.RefusedCall{RefusedCall: budget.RefusedCall{Call: j.Call(), Cause: cause}}
}

// waitText is the text of a job's WaitAt, in microseconds, and WaitCause; empty if it has none.
func waitText(c budget.Cause, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMicro(), 10) + " " + string(c)
}

// parseWait returns no time if the wait is not counted any more, see lua/stay.lua.
func parseWait(text string) (budget.Cause, time.Time) {
	at, cause, _ := strings.Cut(text, " ")
	return budget.Cause(cause), instant(at)
}

// lanePriority returns the priority of a lane: see lua/rings.lua. Jobs that an older version put have
// none.
func lanePriority(lane string) quota.Priority {
	for _, p := range [...]quota.Priority{quota.High, quota.Low} {
		if len(lane) == len(markedLane) && strings.HasSuffix(lane, p.Mark()) {
			return p
		}
	}
	return quota.Normal
}

// markedLane shows the format of a lane with a priority: key, model, priority.
const markedLane = "kkkmmmp"

// memberOf returns the job's member in the set of waiting jobs.
func memberOf(id string, h map[string]string) string {
	return strings.Join([]string{h["org"], h["user"], h["lane"], h["seq"], id, h["tokens"]}, " ")
}

// DeadlinePassed returns the error of a job that had not started by the deadline of its request.
func DeadlinePassed() *wire.Error {
	e := endError("expired")
	e.Message = "The call had not started by the deadline of its Llmguard-Deadline header."
	e.Header = http.Header{"X-Should-Retry": {"false"}}
	return e
}

// endError returns the error shown to a caller for a job that the queue itself ended.
func endError(code string) *wire.Error {
	texts := map[string]struct {
		status  int
		message string
	}{
		"cancelled":   {http.StatusGone, "The job was cancelled."}, // no SDK retries a 410
		"caller_gone": {http.StatusGone, "The job was dropped because its caller disconnected."},
		"expired":     {http.StatusGatewayTimeout, "The job expired: it waited longer than the queue allows."},
		"attempts_exhausted": {
			http.StatusBadGateway,
			"Every attempt to run the job stopped before it finished. The provider may have billed them.",
		},
		"interrupted": {
			http.StatusBadGateway,
			"The job stopped after part of its answer had been sent, so it was not repeated.",
		},
	}
	text, ok := texts[code]
	if !ok {
		return nil
	}
	return &wire.Error{Status: text.status, Type: "server_error", Code: code, Message: text.message}
}
