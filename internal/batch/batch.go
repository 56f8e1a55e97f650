// Package batch serves OpenAI's Batch API on top of the queue: a file of requests is
// checked, its lines become jobs a page at a time, and their results are written to an
// output and an error file. Each line holds and settles its own money, like any job.
//
// A batch is a record in Redis under its own hash tag. One process at a time holds its
// lease and drives it in steps. Each step is written once, fenced by the lease's token, so
// that a successor after a crash continues from the last step. Results are collected in
// chunks in the blob store; a chunk counts once the step that names it is written, which
// also removes its lines. So every line ends up in exactly one of the two files.
package batch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/quota"
)

var (
	newScript    = lua.Load("batch_new")
	leaseScript  = lua.Load("batch_lease")
	stepScript   = lua.Load("batch_step")
	cancelScript = lua.Load("batch_cancel")
)

// ErrNotFound is returned for a batch that does not exist or belongs to another owner.
var ErrNotFound = errors.New("batch: no such batch")

// Status is the state of a batch, in OpenAI's terms.
type Status string

// The statuses.
const (
	Validating Status = "validating"
	Failed     Status = "failed"
	InProgress Status = "in_progress"
	Finalizing Status = "finalizing"
	Completed  Status = "completed"
	Expired    Status = "expired"
	Cancelling Status = "cancelling"
	Cancelled  Status = "cancelled"
)

// Terminal reports whether a batch in this status has ended.
func (s Status) Terminal() bool {
	return s == Failed || s == Completed || s == Expired || s == Cancelled
}

// Window is how long a batch may take. OpenAI offers no other.
const Window = 24 * time.Hour

// MetadataWebhook is the key in a batch's metadata whose value is the URL that receives the
// webhook when the batch ends.
const MetadataWebhook = "llmguard_webhook"

// recordLife is how long a batch can be read.
const recordLife = 31 * 24 * time.Hour

// endpoints lists the endpoints that lines may use.
func endpoints() []wire.Endpoint {
	return slices.DeleteFunc(wire.Endpoints(), func(ep wire.Endpoint) bool { return !ep.Traits().Batched })
}

// EndpointOf returns the endpoint of a path in a batch, with or without /v1; false if lines
// cannot use it.
func EndpointOf(path string) (wire.Endpoint, bool) {
	path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/")
	for _, ep := range endpoints() {
		if ep.Path() == path {
			return ep, true
		}
	}
	return "", false
}

// Paths lists the paths that EndpointOf accepts, for messages.
func Paths() string {
	var list []string
	for _, ep := range endpoints() {
		list = append(list, "/v1"+ep.Path())
	}
	return strings.Join(list, ", ")
}

// Owner is the creator of a batch, and the caller as which its lines run.
type Owner struct {
	Org, User, Key, IP string
	Born, UserBorn     string   // distinguish the key and the user from earlier ones with their ids
	Models             []string // the key's allow-list; empty means all
	Labels             guard.BatchLabels
}

// Problem is an error in an input file.
type Problem struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int    `json:"line"`
}

// Batch is a batch as it was when it was read.
type Batch struct {
	ID string
	Owner
	Endpoint wire.Endpoint
	Model    string // empty until the input file has been checked
	Status   Status
	Problems []Problem
	// Input, Output and Errors are ids of files; empty for none.
	Input, Output, Errors string
	Metadata              map[string]string
	OutputTTL             time.Duration   // of the output files; 0: the store's
	Priority              *quota.Priority // chosen for the lines; nil: none
	StartBy               time.Time       // by which they have to start; zero: none
	Header                http.Header     // that the provider gets with the lines

	Created, Expires                                         time.Time
	Started, Finalized, Completed, Failed, Expired           time.Time
	CancelAsked, Cancelled                                   time.Time
	Total, Succeeded, Unsuccessful                           int64 // lines; Unsuccessful ones did run
	InputTokens, CachedTokens, OutputTokens, ReasoningTokens int64
	Charged, Estimate                                        int64 // nano-USD
	Warnings                                                 []string

	state
}

// filesOwner returns the owner of the batch's files.
func (b *Batch) filesOwner() files.Owner {
	return files.Owner{Org: b.Org, User: budget.Giver(b.User, b.UserBorn)}
}

// Ended returns when the batch ended; zero if it has not.
func (b *Batch) Ended() time.Time {
	return cmp.Or(b.Completed, b.Failed, b.Expired, b.Cancelled)
}

// Request describes a batch to create.
type Request struct {
	Owner
	File      *files.File
	Endpoint  wire.Endpoint
	Metadata  map[string]string
	OutputTTL time.Duration
	Total     int // lines, 0 if nobody has counted them
	// Priority is what the request chose for the lines, nil if nothing; StartBy is the time by
	// which they have to start, zero for none.
	Priority *quota.Priority
	StartBy  time.Time
	// Header has what the provider gets with the lines, among what its dialect forwards.
	Header http.Header
}

// Store stores the batches' records. It is safe for concurrent use. Errors of Redis are
// returned wrapped.
type Store struct {
	rdb   redisconn.DB
	files *files.Store
	tasks asynqdriver.Client
	log   *slog.Logger
	clock string // test clock in microseconds; empty: Redis TIME

	bounds Bounds
}

// NewStore returns a Store. A nil log means slog.Default().
func NewStore(rdb redisconn.DB, f *files.Store, log *slog.Logger) *Store {
	return &Store{rdb: rdb, files: f, tasks: asynqdriver.NewClient(rdb, rdb), log: cmp.Or(log, slog.Default())}
}

// openKey lists the unfinished batches by the Unix second at which they need attention.
const openKey = "lg:{batches}:open"

func recordKey(id string) string { return "lg:{" + id + "}:batch" }

// AllRecords returns the pattern that matches the record keys of all batches.
func AllRecords() string { return recordKey("*") }

// SplitRecordKey returns the id of the batch with this record key.
func SplitRecordKey(key string) string {
	before, after, _ := strings.Cut(AllRecords(), "*")
	return strings.TrimSuffix(strings.TrimPrefix(key, before), after)
}

// Keys returns the keys of a batch, its record first.
func Keys(id string) []string {
	return []string{recordKey(id), "lg:{" + id + "}:lines", "lg:{" + id + "}:chunks"}
}

func indexKey(org, user string) string { return "lg:{" + org + "}:batches:" + user }

const (
	idPrefix = "batch_"
	idLen    = len(idPrefix) + 26
)

// Create creates a batch and wakes a process to drive it. The error may be a *FullError or
// a *capacity.FullError.
func (s *Store) Create(ctx context.Context, r Request) (*Batch, error) {
	id := idPrefix + strings.ToLower(rand.Text())
	if err := s.count(ctx, r.Owner, id); err != nil {
		return nil, err
	}
	err := s.admit(ctx, r.Org, id, callersBytes(r.Metadata, r.Models, r.Header))
	if err == nil {
		err = s.create(ctx, id, r)
	}
	if err != nil {
		ctx = context.WithoutCancel(ctx)
		return nil, errors.Join(err, s.release(ctx, id), s.uncount(ctx, r.Owner, id))
	}
	s.wake(ctx, id, 0)
	return s.Batch(ctx, r.Org, r.User, id)
}

// create writes the record of a batch.
func (s *Store) create(ctx context.Context, id string, r Request) error {
	if err := s.files.Keep(ctx, r.File, time.Now().Add(Window+keepInput)); err != nil {
		if errors.Is(err, files.ErrNotFound) {
			return ErrNotFound
		}
		return err
	}
	priority, startBy := "", int64(0)
	if r.Priority != nil {
		priority = r.Priority.String()
	}
	if !r.StartBy.IsZero() {
		startBy = r.StartBy.Unix()
	}
	args := []any{
		s.clock, int64(Window / time.Second), int64(recordLife / time.Second),
		"org", r.Org, "user", r.User, "key", r.Key, "born", r.Born, "user_born", r.UserBorn, "ip", r.IP,
		"endpoint", string(r.Endpoint), "input", r.File.ID, "output_ttl", int64(r.OutputTTL / time.Second),
		"priority", priority, "start_by", startBy, "total", r.Total,
	}
	for field, value := range map[string]any{
		"models": r.Models, "metadata": r.Metadata, "labels": r.Labels, "header": r.Header,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("batch: %s: %w", field, err)
		}
		args = append(args, field, text)
	}
	now := time.Now()
	due := redisconn.Z{Score: float64(now.Add(overdue).Unix()), Member: id}
	if err := s.rdb.ZAdd(ctx, openKey, due).Err(); err != nil {
		return fmt.Errorf("batch: create: %w", err)
	}
	if err := newScript.Run(ctx, s.rdb, []string{recordKey(id)}, args...).Err(); err != nil {
		return fmt.Errorf("batch: create: %w", err)
	}
	pipe := s.rdb.Pipeline()
	pipe.ZAdd(ctx, indexKey(r.Org, r.User), redisconn.Z{Score: float64(now.UnixMicro()), Member: id})
	pipe.ZRemRangeByScore(ctx, indexKey(r.Org, r.User), "-inf", fmt.Sprint(now.Add(-recordLife).UnixMicro()))
	pipe.Expire(ctx, indexKey(r.Org, r.User), recordLife)
	s.confirm(ctx, pipe, r.Owner, id, now)
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("batch: create: %w", err)
	}
	return nil
}

// keepInput is how long the input file is kept after its batch's window, for a process that
// takes over the batch late.
const keepInput = 24 * time.Hour

// Batch returns a batch of its owner.
func (s *Store) Batch(ctx context.Context, org, user, id string) (*Batch, error) {
	b, err := s.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if b.Org != org || b.User != user {
		return nil, ErrNotFound
	}
	return b, nil
}

func (s *Store) load(ctx context.Context, id string) (*Batch, error) {
	if len(id) != idLen || !strings.HasPrefix(id, idPrefix) || strings.ContainsAny(id, "{}") {
		return nil, ErrNotFound
	}
	h, err := s.rdb.HGetAll(ctx, recordKey(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("batch: read: %w", err)
	}
	b, err := decode(id, h)
	if err != nil {
		return nil, err
	}
	return b, s.addCosts(ctx, b)
}

// Cancel requests the end of a batch of its owner and returns the batch as it is then.
func (s *Store) Cancel(ctx context.Context, org, user, id string) (*Batch, error) {
	if _, err := s.Batch(ctx, org, user, id); err != nil {
		return nil, err
	}
	if err := cancelScript.Run(ctx, s.rdb, []string{recordKey(id)}, s.clock).Err(); err != nil {
		return nil, fmt.Errorf("batch: cancel: %w", err)
	}
	s.wake(ctx, id, 0)
	return s.Batch(ctx, org, user, id)
}

// List returns a page of an owner's batches, newest first, and whether there are more.
// after is the id of the last one of the previous page; the error is ErrNotFound if the
// owner has no such batch.
func (s *Store) List(ctx context.Context, org, user, after string, limit int) ([]*Batch, bool, error) {
	index := indexKey(org, user)
	var from int64
	if after != "" {
		rank, err := s.rdb.ZRevRank(ctx, index, after).Result()
		if redisconn.IsNil(err) {
			return nil, false, ErrNotFound
		}
		if err != nil {
			return nil, false, fmt.Errorf("batch: list: %w", err)
		}
		from = rank + 1
	}
	ids, err := s.rdb.ZRevRange(ctx, index, from, from+int64(limit)).Result()
	if err != nil {
		return nil, false, fmt.Errorf("batch: list: %w", err)
	}
	var page []listed
	for _, id := range ids[:min(len(ids), limit)] {
		page = append(page, listed{id: id})
	}
	batches, err := s.records(ctx, page)
	return batches, len(ids) > limit, err
}
