package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// state is the part of a record that only its driver uses.
type state struct {
	step     int64
	lastLine int    // of the last request in the input file
	pool     string // of its model, when it was checked
	// Lines up to next have become jobs or results; those up to page may have become
	// jobs.
	next, page position
	// seenOK and seenBad count lines that ended but are not gathered yet.
	seenOK, seenBad int64
	// ending is the batch's final status once it is finalizing; planOutput and planErrs
	// are the ids its files will have.
	ending               Status
	planOutput, planErrs string

	// provider runs the batch; it is empty if the queue does. upstream is the model's
	// name there. Lines are handed over in parts; fills counts the attempts to create
	// one, and the next starts no earlier than fillAgain, in Unix seconds.
	provider, upstream string
	parts              []*part
	fills              int
	fillAgain          int64
}

// position is a place in an input file: the lines and bytes before it.
type position struct {
	line int
	off  int64
}

func (p position) String() string { return fmt.Sprintf("%d %d", p.line, p.off) }

func parsePosition(s string) (p position) {
	line, off, _ := strings.Cut(s, " ")
	p.line, _ = strconv.Atoi(line)
	p.off, _ = strconv.ParseInt(off, 10, 64)
	return p
}

// Times of a record, by the names of their fields.
const (
	stampStarted   = "in_progress_at"
	stampFinalized = "finalizing_at"
	stampCompleted = "completed_at"
	stampFailed    = "failed_at"
	stampExpired   = "expired_at"
	stampCancelled = "cancelled_at"
)

func decode(id string, h map[string]string) (*Batch, error) {
	if h["created"] == "" {
		return nil, ErrNotFound
	}
	n := func(field string) int64 { v, _ := strconv.ParseInt(h[field], 10, 64); return v }
	at := func(field string) time.Time {
		if h[field] == "" {
			return time.Time{}
		}
		return time.Unix(n(field), 0)
	}
	b := &Batch{
		ID: id,
		Owner: Owner{
			Org: h["org"], User: h["user"], Key: h["key"], Born: h["born"], UserBorn: h["user_born"], IP: h["ip"],
		},
		Endpoint: wire.Endpoint(h["endpoint"]), Model: h["model"], Status: Status(h["status"]),
		Input: h["input"], Output: h["output"], Errors: h["errors"],
		OutputTTL: time.Duration(n("output_ttl")) * time.Second,
		Created:   at("created"), Expires: at("expires"), Started: at(stampStarted), Finalized: at(stampFinalized),
		Completed: at(stampCompleted), Failed: at(stampFailed), Expired: at(stampExpired),
		CancelAsked: at("cancelling"), Cancelled: at(stampCancelled),
		Total: n("total"), Succeeded: n("succeeded"), Unsuccessful: n("unsuccessful"),
		InputTokens: n("input_tokens"), CachedTokens: n("cached_tokens"),
		OutputTokens: n("output_tokens"), ReasoningTokens: n("reasoning_tokens"),
		Charged: n("charged"), Estimate: n("estimate"),
		state: state{
			step: n("step"), lastLine: int(n("last_line")), pool: h["pool"], next: parsePosition(h["next"]),
			page:   parsePosition(h["page"]),
			seenOK: n("seen_ok"), seenBad: n("seen_bad"), ending: Status(h["ending"]),
			planOutput: h["plan_output"], planErrs: h["plan_errors"],
			provider: h["provider"], upstream: h["upstream"], fills: int(n("fills")), fillAgain: n("fill_again"),
		},
	}
	if p, err := quota.ParsePriority(h["priority"]); err == nil {
		b.Priority = &p
	}
	if n("start_by") > 0 {
		b.StartBy = at("start_by")
	}
	for field, into := range map[string]any{
		"models": &b.Models, "metadata": &b.Metadata, "problems": &b.Problems, "warnings": &b.Warnings,
		"labels": &b.Labels, "header": &b.Header,
	} {
		if text := h[field]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, fmt.Errorf("batch: %s of %s: %w", field, id, err)
			}
		}
	}
	for i := 1; h[partField(i)] != ""; i++ {
		p, err := parsePart(h[partField(i)])
		if err != nil {
			return nil, fmt.Errorf("batch: part %d of %s: %w", i, id, err)
		}
		b.parts = append(b.parts, p)
	}
	return b, nil
}

// Done returns how many lines have succeeded and how many have not, gathered or not. Once the batch
// has ended, lines that never ran count among the latter, so that the two add up to Total.
func (b *Batch) Done() (succeeded, unsuccessful int64) {
	if b.Status == Completed || b.Status == Expired || b.Status == Cancelled {
		return b.Succeeded, b.Total - b.Succeeded
	}
	return b.Succeeded + b.seenOK, b.Unsuccessful + b.seenBad
}

// step is one atomic change of a record.
type step struct {
	Status Status            `json:"status,omitempty"`
	Set    map[string]string `json:"set,omitempty"`
	Stamp  []string          `json:"stamp,omitempty"`
	Inc    map[string]string `json:"inc,omitempty"`
	Add    map[string]string `json:"add,omitempty"`
	Drop   []string          `json:"drop,omitempty"`
	Push   []string          `json:"push,omitempty"`
}

func (s *step) set(field, value string) {
	if s.Set == nil {
		s.Set = make(map[string]string)
	}
	s.Set[field] = value
}

// seen sets how many lines have ended that are not gathered yet.
func (s *step) seen(ok, bad int64) {
	s.set("seen_ok", strconv.FormatInt(ok, 10))
	s.set("seen_bad", strconv.FormatInt(bad, 10))
}

func (s *step) inc(field string, n int64) {
	if n == 0 {
		return
	}
	if s.Inc == nil {
		s.Inc = make(map[string]string)
	}
	s.Inc[field] = strconv.FormatInt(n, 10)
}

var (
	// errLost reports that another process has the batch.
	errLost = errors.New("batch: another process has the batch")
	// errMoved reports that the batch's status has changed: it was cancelled.
	errMoved = errors.New("batch: the status has changed")
)

// write writes the next step of a batch that has one of the statuses, and updates b.Status
// and b.step. Errors are errLost, errMoved, or come from Redis; after an error of Redis the
// same step can be written again.
func (s *Store) write(ctx context.Context, b *Batch, token string, st step, from ...Status) error {
	text, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("batch: step: %w", err)
	}
	words := " "
	for _, f := range from {
		words += string(f) + " "
	}
	reply, err := stepScript.Run(ctx, s.rdb, Keys(b.ID), s.clock, token, b.step+1, words, text).Text()
	if err != nil {
		return fmt.Errorf("batch: step: %w", err)
	}
	word, status, _ := strings.Cut(reply, " ")
	switch word {
	case "ok":
		b.step++
		b.Status = Status(status)
		return nil
	case "status":
		b.Status = Status(status)
		return errMoved
	}
	return errLost
}
