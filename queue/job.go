package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// Class orders jobs: a caller is connected, one asked for it, or a batch did.
type Class uint8

// The classes, in the order in which they are served. Async is first in one
// turn of ten and Batch in one of twenty, so that none starves.
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

// State is where a job is in its life.
type State string

// The states. A job goes from queued to running, back to queued when its
// attempt ended without an outcome, and once into one of the other four.
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

// Job is a queued request without its body. The first block is given to Put,
// the second kept by the queue. A Job is a copy: changing it changes nothing.
type Job struct {
	ID, Pool, Org, User, Key, CallID string

	Class    Class
	Endpoint wire.Endpoint
	Model    string
	// Stream tells that the answer is a stream of events. A started attempt of
	// an interactive stream is not retried once it recorded output.
	Stream bool
	// Tokens is the call's estimate, booked on the pool's TPM; Cost its hold.
	Tokens int64
	Cost   pricing.Nano
	// Answer is the AnswerBytes of its call when it is put; 0: not known.
	Answer int64
	// Notice, when not empty, makes Announce tell of the job's end; it is handed
	// over with it and means nothing to the queue. Without line breaks.
	Notice string
	// IP is the caller's address, for limits per address.
	IP string
	// Header holds the few request headers to forward, Query the raw query.
	Header http.Header
	Query  string
	// Trace is the caller's trace, which the job's runs go on with; see
	// tracing.Context. Empty: they begin their own.
	Trace string

	// State, and Code why a job ended that did not succeed.
	State State
	Code  string
	// Cancelling: it has not ended, but was told to; see Queue.Cancel.
	Cancelling bool
	// Attempt numbers the latest start; dead attempts keep their number. Tries
	// counts the starts that count against Options.MaxAttempts.
	Attempt, Tries int
	// Retries counts the attempts that the provider failed; Again is when the next one may
	// begin, which means something while the job waits.
	Retries int
	Again   time.Time
	// Limit is the limit that last made it wait; that of a spend cap follows "cap:".
	Limit string
	// Created, Deadline (the end of waiting), Started (of the latest attempt)
	// and Finished are of Redis's clock; zero when not reached.
	Created, Deadline, Started, Finished time.Time
	// Charged, Status and Error are the outcome.
	Charged pricing.Nano
	Status  int
	Error   *wire.Error
	// Replay is the job that Replay made of this one; empty for none.
	Replay string
	// Origin is the dead letter that this one replays; empty for none.
	Origin string
	// Version is the schema version of the record.
	Version int
	// Bytes is the size of the body.
	Bytes int64

	member string // the job among the waiting ones
	away   bool   // the body that was put is a blob
}

// Waited is how long the job waited before its latest attempt, or until now.
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

// schemaVersion is written by Put; records of a later one are refused.
const schemaVersion = 1

// ErrNewer is returned for a job whose record a newer version of this program
// wrote. Its workers leave such a job to newer ones.
var ErrNewer = errors.New("queue: job record of a newer version")

// given returns what Put stores beside the script's own fields.
func (j *Job) given() ([]any, error) {
	given := []any{"call", j.CallID, "endpoint", string(j.Endpoint), "model", j.Model}
	if j.Stream {
		given = append(given, "stream", "1")
	}
	if j.Cost != 0 {
		given = append(given, "cost", int64(j.Cost))
	}
	for _, field := range [...][2]string{
		{"key", j.Key},
		{"query", j.Query},
		{"ip", j.IP},
		{"notice", j.Notice},
		{"trace", j.Trace},
		{"origin", j.Origin},
		{"limit", j.Limit},
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

// decodeJob reads a job's hash; nil when there is none.
func decodeJob(pool, id string, h map[string]string) (*Job, error) {
	if h["state"] == "" {
		return nil, nil
	}
	n := func(field string) int64 { v, _ := strconv.ParseInt(h[field], 10, 64); return v }
	j := &Job{
		ID: id, Pool: pool, Org: h["org"], User: h["user"], Key: h["key"], CallID: h["call"],
		Class: Class(n("class")), Endpoint: wire.Endpoint(h["endpoint"]), Model: h["model"], Stream: h["stream"] == "1",
		Tokens: n("tokens"), Cost: pricing.Nano(n("cost")), Query: h["query"], IP: h["ip"], Notice: h["notice"],
		Trace: h["trace"],
		State: State(h["state"]), Code: h["code"], Attempt: int(n("attempt")), Tries: int(n("tries")),
		Retries: int(n("retries")), Again: instant(h["again"]), Limit: h["limit"],
		Created: instant(h["created"]), Deadline: instant(h["deadline"]),
		Started: instant(h["started"]), Finished: instant(h["finished"]),
		Charged: pricing.Nano(n("charged")), Status: int(n("status")),
		Replay: h["replay"], Origin: h["origin"], Version: int(n("v")), Bytes: n("bytes"), member: memberOf(id, h),
	}
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
	}
	return j, nil
}

// memberOf is the job among the waiting ones.
func memberOf(id string, h map[string]string) string {
	return strings.Join([]string{h["org"], h["user"], h["lane"], h["seq"], id, h["tokens"]}, " ")
}

// endError returns what a caller is told of a job that the queue itself ended.
func endError(code string) *wire.Error {
	texts := map[string]struct {
		status  int
		message string
	}{
		"cancelled":   {http.StatusGone, "The job was cancelled."}, // no SDK retries 410
		"caller_gone": {http.StatusGone, "The job was dropped because its caller had gone."},
		"expired":     {http.StatusGatewayTimeout, "The job waited longer than the queue keeps jobs."},
		"attempts_exhausted": {
			http.StatusBadGateway,
			"Every attempt to run the job died before its end. The provider may have billed them.",
		},
		"interrupted": {
			http.StatusBadGateway,
			"The job died after part of its answer had been sent, so it was not repeated.",
		},
	}
	text, ok := texts[code]
	if !ok {
		return nil
	}
	return &wire.Error{Status: text.status, Type: "server_error", Code: code, Message: text.message}
}
