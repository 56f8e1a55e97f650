package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// trial is a row of the matrix: what the provider does, for calls of these kinds. Through
// llmguard a call must end as it does at the provider, unless a rule of the wire says
// otherwise.
type trial struct {
	Name  string   `json:"name"`
	Fake  string   `json:"fake"`
	Model string   `json:"model"`
	Busy  bool     `json:"busy"` // uses the client's own pool, which is blocked repeatedly
	Alone bool     `json:"-"`    // uses a pool of its own, which is blocked for an hour
	Kinds []string `json:"kinds"`
	// DirectMS is how long to wait for the end of a call at the provider; 0 means forever.
	DirectMS int `json:"direct_ms"`
	// rule is the section of docs/errors.md, or the promise, by which llmguard differs, and wants
	// is what such outcomes look like, for all clients and kinds. At least one client must see
	// a difference.
	rule  string
	wants func(outcome) bool
}

// Kinds of calls. Helpers are openai-node's own stream readers.
var (
	plainKinds  = []string{"chat", "response"}
	streamKinds = []string{"stream", "events"}
	allKinds    = []string{"chat", "stream", "response", "events"}
	chatKinds   = []string{"stream", "helper"}
	eventKinds  = []string{"events", "eventhelper"}
	helperKinds = []string{"stream", "helper", "events", "eventhelper"}
)

const freeModel = "gpt-4o-mini"

// raw makes the provider send a text in the middle of a stream.
func raw(text string, times int) string {
	return fmt.Sprintf("raw=%s repeat=%d", url.QueryEscape(text), times)
}

// matrix returns all rows.
func matrix() []trial {
	var rows []trial
	for _, part := range [][]trial{wholeRows(), keepAliveRows(), frameRows(), cutRows(), statusRows(), busyRows()} {
		rows = append(rows, part...)
	}
	for i := range rows {
		if rows[i].Model == "" {
			rows[i].Model = freeModel
		}
	}
	if !soak {
		rows = slices.DeleteFunc(rows, func(r trial) bool { return !shortRows[r.Name] })
	}
	return rows
}

// shortRows are the rows of `make test`: one or two for each kind of response.
var shortRows = map[string]bool{
	"whole": true, "gzip": true, "302 newlines": true, "20 comments": true, "chunk with error null": true,
	"chat error": true, "flat error event": true, "early nested error event": true,
	"clean end": true, "no [DONE]": true, "aborted stream": true, "aborted answer": true,
	"400": true, "500": true, "context length": true, "401 chat": true, "401 response": true, "500 then well": true,
	"500, do not retry": true, "error body html": true, "status=429 retry-after=1": true,
}

func wholeRows() []trial {
	return []trial{
		{Name: "whole", Kinds: append([]string{"helper", "eventhelper"}, allKinds...)},
		{Name: "gzip", Fake: "gzip", Kinds: allKinds},
		{Name: "crlf", Fake: "newline=crlf", Kinds: streamKinds},
		{Name: "cut inside characters", Fake: "split=byte", Kinds: streamKinds},
	}
}

// keepAliveRows test what may come between events.
func keepAliveRows() []trial {
	chunk := `data: {"id":"chatcmpl-x","object":"chat.completion.chunk","created":1,"model":"m",%s}` + "\n\n"
	return []trial{
		{Name: "20 newlines", Fake: raw("\n", 20), Kinds: streamKinds},
		{Name: "299 newlines", Fake: raw("\n", 299), Kinds: streamKinds},
		{Name: "302 newlines", Fake: raw("\n", 302), Kinds: streamKinds},
		{Name: "20 comment lines", Fake: raw(": x\n", 20), Kinds: streamKinds},
		{Name: "20 comments", Fake: raw(": x\n\n", 20), Kinds: streamKinds},
		{Name: "152 comments", Fake: raw(": x\n\n", 152), Kinds: streamKinds},
		{Name: "id line", Fake: raw("id: 7\n\n", 1), Kinds: streamKinds},
		{Name: "retry line", Fake: raw("retry: 5\n\n", 1), Kinds: streamKinds},
		{Name: "event without data", Fake: raw("event: x\n\n", 1), Kinds: streamKinds},
		{Name: "chunk without choices", Fake: raw(fmt.Sprintf(chunk, `"choices":[]`), 1), Kinds: chatKinds},
		{Name: "chunk with error null", Fake: raw(fmt.Sprintf(chunk, `"choices":[{"index":0,"delta":{},"finish_reason":null}],"error":null`), 1), Kinds: chatKinds},
		{Name: "keepalive event", Fake: raw("event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":9}\n\n", 1), Kinds: eventKinds},
		{Name: "custom response event", Fake: raw("event: response.xyz\ndata: {\"type\":\"response.xyz\",\"sequence_number\":9}\n\n", 1), Kinds: eventKinds},
	}
}

// frameRows test error frames.
func frameRows() []trial {
	inner := `{"message":"it broke","type":"server_error","param":null,"code":"server_error"}`
	chat := `data: {"error":` + inner + "}\n\n"
	typed := `data: {"type":"error","sequence_number":9`
	flat := `,"code":"server_error","message":"it broke","param":null`
	var rows []trial
	for _, early := range []string{"", "early "} {
		add := func(name, text string, kinds []string) {
			row := trial{Name: early + name, Fake: early + raw(text, 1) + " cut=eof", Kinds: kinds}
			if early != "" { // nothing was sent yet, so that the answer can have the error's status
				row.rule, row.wants = "Errors in a stream", func(o outcome) bool {
					return !o.OK && (o.Status == 500 || o.client == "AI SDK")
				}
			}
			rows = append(rows, row)
		}
		add("chat error", chat, chatKinds)
		add("chat error with event line", "event: error\n"+chat, chatKinds)
		add("flat error event", "event: error\n"+typed+flat+"}\n\n", eventKinds)
		add("nested error event", "event: error\n"+typed+`,"error":`+inner+"}\n\n", eventKinds)
		add("error event without type", "event: error\n"+chat, eventKinds)
		add("both in one", "event: error\n"+typed+flat+`,"error":`+inner+"}\n\n", eventKinds)
	}
	return rows
}

// failedMidway reports whether a stream ended as it must after breaking off (docs/errors.md,
// Errors in a stream).
func failedMidway(o outcome) bool {
	return !o.OK && o.Attempts == 1 && strings.Contains(o.Message, "The answer above is incomplete")
}

// cutRows test responses that break off.
func cutRows() []trial {
	return []trial{
		{Name: "clean end", Fake: "cut=eof", Kinds: helperKinds, rule: "Errors in a stream", wants: failedMidway},
		{Name: "no [DONE]", Fake: "cut=nodone", Kinds: chatKinds},
		{Name: "no completed", Fake: "cut=nodone", Kinds: eventKinds, rule: "Errors in a stream", wants: failedMidway},
		{Name: "aborted stream", Fake: "cut=abort", Kinds: helperKinds, rule: "Errors in a stream", wants: failedMidway},
		{Name: "reset stream", Fake: "cut=reset", Kinds: streamKinds, rule: "Errors in a stream", wants: failedMidway},
		{Name: "aborted answer", Fake: "cut=abort", Kinds: plainKinds, rule: "Codes", wants: gateway},
		{Name: "reset answer", Fake: "cut=reset", Kinds: plainKinds, rule: "Codes", wants: gateway},
		{Name: "reset before the head", Fake: "cut=headers", Kinds: []string{"chat", "stream"}, rule: "Codes", wants: gateway},
	}
}

// gateway reports whether the outcome is our own error for a provider that broke off.
func gateway(o outcome) bool { return !o.OK && o.Status == 502 && o.Code == "upstream_error" }

// statusRows test the statuses that clients retry.
func statusRows() []trial {
	fast := " header=Retry-After-Ms:20"
	var rows []trial
	for _, status := range []int{400, 403, 404, 408, 409, 413, 422, 500, 502, 504} {
		rows = append(rows, trial{Name: fmt.Sprint(status), Fake: fmt.Sprintf("status=%d", status) + fast, Kinds: allKinds})
	}
	shape := func(name string) trial {
		return trial{Name: "error body " + name, Fake: "status=500 body=" + name + fast, Kinds: []string{"chat"}, rule: "Error bodies", wants: func(o outcome) bool {
			return !o.OK && o.Status == 500 && o.Code != "" && o.Message != ""
		}}
	}
	rejected := func(kind string) trial { // clients that repeat it meet the pause
		return trial{Name: "401 " + kind, Fake: "status=401", Kinds: []string{kind}, Alone: true, rule: "Credentials and headers", wants: func(o outcome) bool {
			return gateway(o) || !o.OK && o.Status == 429 && (o.client == "AI SDK" || o.client == "LangChain")
		}}
	}
	return append(rows,
		trial{Name: "context length", Fake: "status=400 code=context_length_exceeded message=too+long", Kinds: allKinds},
		rejected("chat"), rejected("response"),
		trial{Name: "500 then well", Fake: "status=500 times=1" + fast, Kinds: allKinds},
		trial{Name: "500 in a second", Fake: "status=500 times=1 retry-after=1", Kinds: plainKinds},
		trial{Name: "500 at a date", Fake: "status=500 times=1 retry-after=Mon,+02+Jan+2006+15:04:05+GMT", Kinds: plainKinds},
		trial{Name: "400, retry", Fake: "status=400 times=1 header=X-Should-Retry:true" + fast, Kinds: allKinds},
		trial{Name: "500, do not retry", Fake: "status=500 header=X-Should-Retry:false" + fast, Kinds: allKinds},
		shape("html"), shape("empty"), shape("string"), shape("detail"), shape("number"),
		trial{Name: "500 after the longest wait", Fake: "status=500 retry-after=300", DirectMS: 3000, Kinds: []string{"chat"}, rule: "Retry advice", wants: func(o outcome) bool {
			return !o.OK && o.Status == 500 && (o.Attempts == 1 || o.client == "AI SDK" || o.client == "LangChain")
		}},
	)
}

// busyRows test what llmguard waits for on behalf of its callers. There are few, because every
// 429 and 503 pauses the pool.
func busyRows() []trial {
	waits := func(o outcome) bool { return o.OK && o.Attempts == 1 }
	row := func(fake, kind string) trial {
		return trial{Name: fake, Fake: fake + " times=1", Busy: true, Kinds: []string{kind}, rule: "P3", wants: waits}
	}
	return []trial{
		row("status=429 retry-after=1", "chat"), row("status=429 code=slow_down header=Retry-After-Ms:50", "stream"),
		row("status=503 retry-after=1", "chat"), row("status=503", "stream"),
		{
			Name: "money is gone", Fake: "status=429 type=insufficient_quota code=insufficient_quota message=no+money header=Retry-After-Ms:20",
			Alone: true, Kinds: []string{"chat"}, rule: "Retry advice", wants: func(o outcome) bool {
				return !o.OK && o.Status == 429 && (o.Code == "insufficient_quota" && o.Attempts == 1 || o.client == "AI SDK")
			},
		},
	}
}
