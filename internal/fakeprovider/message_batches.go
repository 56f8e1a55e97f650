package fakeprovider

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Anthropic's Message Batches. Lines run as those of OpenAI's batches do, under the same scripts.

const messageBatches = "/v1/messages/batches"

// messageBatch is a batch in Anthropic's format.
type messageBatch struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Status    string        `json:"processing_status"`
	Counts    messageCounts `json:"request_counts"`
	Created   time.Time     `json:"created_at"`
	Expires   time.Time     `json:"expires_at"`
	Ended     *time.Time    `json:"ended_at"`
	Canceling *time.Time    `json:"cancel_initiated_at"`
	Archived  *time.Time    `json:"archived_at"`
	Results   *string       `json:"results_url"`

	counted *messageCounts // Counts at the end; copies share it
	results []byte
	base    string // of results_url
}

type messageCounts struct {
	Processing int `json:"processing"`
	Succeeded  int `json:"succeeded"`
	Errored    int `json:"errored"`
	Canceled   int `json:"canceled"`
	Expired    int `json:"expired"`
}

// routeMessageBatches returns the handler for a path below /v1/messages/batches.
func routeMessageBatches(x *exchange) (method string, handle handler) {
	id, what, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(x.r.URL.Path, messageBatches), "/"), "/")
	switch {
	case id == "" && x.r.Method == http.MethodPost:
		return http.MethodPost, scripted(createMessageBatch)
	case id == "":
		return http.MethodGet, scripted(listMessageBatches)
	case what == "cancel":
		return http.MethodPost, withBatch(id, (*batchJob).cancelMessages)
	case what == "results":
		return http.MethodGet, scripted(sendMessageResults)
	case x.r.Method == http.MethodDelete:
		return http.MethodDelete, deleteMessageBatch
	}
	return http.MethodGet, withBatch(id, func(*batchJob) {})
}

func (b *batchJob) cancelMessages() {
	if b.messages.Status == "in_progress" {
		now := time.Now().UTC()
		b.messages.Status, b.messages.Canceling, b.cancelling = "canceling", &now, true
	}
}

func listMessageBatches(x *exchange, _ bool) error {
	var all []messageBatch
	x.s.change(func() {
		for _, b := range slices.Backward(x.s.batches) {
			if b.messages != nil && b.Status != deleted {
				all = append(all, *b.messages)
			}
		}
	})
	return x.show(pageOf(x.r, all, 1000, func(b messageBatch) string { return b.ID }), false)
}

// messageLine is a request of a batch.
type messageLine struct {
	CustomID string          `json:"custom_id"`
	Params   json.RawMessage `json:"params"`
}

var messageID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readMessageLines reads the requests of a new batch, which all must be valid.
func readMessageLines(body []byte) (lines []batchLine, err error) {
	var in struct{ Requests []messageLine }
	if json.Unmarshal(body, &in) != nil || len(in.Requests) == 0 {
		return nil, invalid("", "", "requests: List should have at least 1 item")
	}
	seen := map[string]bool{}
	for i, one := range in.Requests {
		var params struct {
			Stream    bool
			MaxTokens *int64 `json:"max_tokens"`
			Speed     string
		}
		err := json.Unmarshal(one.Params, &params)
		switch {
		case !messageID.MatchString(one.CustomID), seen[one.CustomID]:
			return nil, invalid("", "", "requests.%d.custom_id: must be unique and match %s", i, messageID)
		case err != nil, params.Stream, params.Speed == "fast", params.MaxTokens != nil && *params.MaxTokens == 0:
			return nil, invalid("", "", "requests.%d.params: not supported in a batch", i)
		}
		seen[one.CustomID] = true
		lines = append(lines, batchLine{one.CustomID, http.MethodPost, "/v1/messages", one.Params})
	}
	return lines, nil
}

func createMessageBatch(x *exchange, lost bool) error {
	lines, err := readMessageLines(x.q.Body)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	b := &batchJob{ID: newID("msgbatch_"), header: http.Header{}}
	for _, name := range []string{"X-Api-Key", "Anthropic-Version", "Anthropic-Beta"} {
		b.header[name] = x.r.Header.Values(name)
	}
	b.messages = &messageBatch{
		ID: b.ID, Type: "message_batch", Status: "in_progress", Counts: messageCounts{Processing: len(lines)},
		Created: now, Expires: now.Add(24 * time.Hour), counted: &messageCounts{}, base: "http://" + x.r.Host,
	}
	seen := x.s.addBatch(b)
	if refuses := b.script.Fail; len(refuses) > 0 {
		return invalid("", "", "%s", refuses[0].Message)
	}
	x.s.running.Go(func() { x.s.runLines(b, lines) })
	return x.show(seen, lost)
}

// line returns a result as Anthropic writes it, and counts it. It is not safe for concurrent use.
func (m *messageBatch) line(r lineResult) []byte {
	result := map[string]any{"type": "errored"}
	switch {
	case r.Error != nil && r.Error.Code == "batch_cancelled":
		result["type"] = "canceled"
		m.counted.Canceled++
	case r.Response == nil:
		result["type"] = "expired"
		m.counted.Expired++
	case r.Response.Status >= http.StatusBadRequest:
		result["error"] = r.Response.Body
		m.counted.Errored++
	default:
		result["type"], result["message"] = "succeeded", r.Response.Body
		m.counted.Succeeded++
	}
	return encode(map[string]any{"custom_id": r.CustomID, "result": result})
}

// endMessages ends a batch. Counts change only then. It needs the lock.
func (b *batchJob) endMessages(results []byte) {
	m, now, url := b.messages, time.Now().UTC(), b.messages.base+messageBatches+"/"+b.ID+"/results"
	m.Status, m.Ended, m.Results, m.results = "ended", &now, &url, results
	m.Counts, b.Status = *m.counted, m.Status
}

func sendMessageResults(x *exchange, lost bool) error {
	id := strings.TrimSuffix(strings.TrimPrefix(x.r.URL.Path, messageBatches+"/"), "/results")
	var text []byte
	x.s.change(func() {
		if b := x.s.batch(id); b != nil {
			text = b.messages.results
		}
	})
	if text == nil {
		return missing("message batch results", id)
	}
	return x.send("application/x-jsonl", text, lost)
}

func deleteMessageBatch(x *exchange) error {
	id := strings.TrimPrefix(x.r.URL.Path, messageBatches+"/")
	ended := false
	x.s.change(func() {
		b := x.s.batch(id)
		ended = b != nil && b.Status == "ended"
		if ended {
			b.Status = deleted
		}
	})
	if !ended {
		return missing("ended message batch", id)
	}
	return x.show(map[string]any{"id": id, "type": "message_batch_deleted"}, false)
}
