package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// background is the request body of a background response.
func background(text, more string) string {
	return fmt.Sprintf(`{"model":"gpt-4o-mini","input":%q,"max_output_tokens":200,"background":true%s}`, text, more)
}

// poll fetches a response until it has ended.
func (p *process) poll(key, id string) reply {
	p.t.Helper()
	for range 2400 {
		r := p.do(key, "GET", "/responses/"+id, "")
		if s := r.get(p.t, "status"); r.status != 200 || s != "queued" && s != "in_progress" {
			return r
		}
		time.Sleep(25 * time.Millisecond)
	}
	p.t.Fatalf("response %s does not end", id)
	return reply{}
}

// dialects are the ways in which a provider serves Responses.
var dialects = map[string]string{"native": twoOrgs, "translated": chatOnly(twoOrgs)}

// TestBackground creates background responses on a provider that does not support them.
func TestBackground(t *testing.T) {
	t.Parallel()
	for name, config := range dialects {
		t.Run(name, func(t *testing.T) { makeBackground(t, config) })
	}
}

func makeBackground(t *testing.T, config string) {
	s := newStack(t, fakeprovider.Options{KeepBodies: true}, config)
	p := s.proxy()
	alice, bob, eve := s.keys["alice"], s.keys["bob"], s.keys["eve"]

	r := p.do(alice, "POST", "/responses", background("[fake: output=20]", ""))
	id, _ := r.get(t, "id").(string)
	if r.status != 200 || !strings.HasPrefix(id, "resp_") || r.get(t, "status") != "queued" || r.get(t, "usage") != nil || r.get(t, "background") != true {
		t.Fatalf("%+v", r)
	}
	waiting := p.do(alice, "POST", "/responses", background("never run", ""))
	never := waiting.get(t, "id").(string)
	for range 2 { // cancelling again changes nothing
		if r := p.do(alice, "POST", "/responses/"+never+"/cancel", ""); r.status != 200 || r.get(t, "status") != "cancelled" || r.get(t, "id") != never {
			t.Errorf("%+v", r)
		}
	}
	for _, key := range []string{bob, eve} {
		for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
			if r := p.do(key, call[0], "/responses/"+id+call[1], ""); r.status != 404 {
				t.Errorf("%v: %+v", call, r)
			}
		}
	}
	s.worker()
	running := p.do(alice, "POST", "/responses", background("[fake: delay=10m]", "")).get(t, "id").(string)
	until(t, "a response is made", func() bool { return p.do(alice, "GET", "/responses/"+running, "").get(t, "status") == "in_progress" })
	if r := p.do(alice, "POST", "/responses/"+running+"/cancel", ""); r.status != 200 || r.get(t, "status") != "cancelled" && r.get(t, "status") != "in_progress" {
		t.Errorf("%+v", r)
	}
	if r := p.poll(alice, running); r.get(t, "status") != "cancelled" { // the worker may need more than 2 s
		t.Errorf("%+v", r)
	}
	r = p.poll(alice, id)
	if r.get(t, "status") != "completed" || r.get(t, "id") != id || r.get(t, "background") != true || r.get(t, "usage.output_tokens") != 20.0 {
		t.Errorf("%+v", r)
	}
	more := p.do(alice, "POST", "/responses", `{"model":"gpt-4o-mini","input":"more","max_output_tokens":50,"previous_response_id":"`+id+`"}`)
	if in, _ := more.get(t, "usage.input_tokens").(float64); more.status != 200 || in < 20 {
		t.Errorf("%+v", more)
	}
	if r := p.do(eve, "POST", "/responses", `{"model":"gpt-4o-mini","input":"more","max_output_tokens":50,"previous_response_id":"`+id+`"}`); r.status != 404 {
		t.Errorf("%+v", r)
	}
	if r := p.do(alice, "GET", "/responses/"+id+"/input_items", ""); r.status != 200 || r.get(t, "object") != "list" {
		t.Errorf("%+v", r)
	}
	if r := p.do(alice, "GET", "/responses/"+id+"?stream=true", ""); r.status != 400 {
		t.Errorf("%+v", r)
	}
	failed := p.do(alice, "POST", "/responses", background("[fake: status=400 message=no+way]", ""))
	if r := p.poll(alice, failed.get(t, "id").(string)); r.get(t, "status") != "failed" || r.get(t, "error.message") != "no way" {
		t.Errorf("%+v", r)
	}
	if r := p.do(alice, "DELETE", "/responses/"+id, ""); r.status != 200 || r.get(t, "deleted") != true {
		t.Errorf("%+v", r)
	}
	if r := p.do(alice, "GET", "/responses/"+id, ""); r.status != 404 {
		t.Errorf("%+v", r)
	}
	for _, record := range s.fake.Log() {
		if strings.Contains(string(record.Body), `"background":true`) {
			t.Errorf("the provider was asked for a background: %s", record.Body)
		}
	}
}

// TestBackgroundStream reads a stream in two halves, with a broken connection in between, and
// compares it with one that was read without a break.
func TestBackgroundStream(t *testing.T) {
	t.Parallel()
	for name, config := range dialects {
		t.Run(name, func(t *testing.T) { streamBackground(t, config) })
	}
}

func streamBackground(t *testing.T, config string) {
	s := newStack(t, fakeprovider.Options{}, config)
	answer := make(chan struct{}) // closed when the provider may answer
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		redistest.Came(t, answer)
		return fakeprovider.Behaviour{}
	})
	let := sync.OnceFunc(func() { close(answer) })
	defer let()
	p := s.proxy()
	s.worker()
	alice := s.keys["alice"]
	first := p.open(alice, "POST", "/responses", background("[fake: output=60 gap=10ms]", `,"stream":true`))
	id, _ := reply{body: first.take(1)[0]}.get(t, "response.id").(string)
	// The first two events echo the request, which is deleted soon after the job: another reader starts before.
	other := p.open(alice, "GET", "/responses/"+id+"?stream=true", "")
	other.take(1)
	let()
	got := first.take(20)
	first.Close() // the job continues
	last := reply{body: got[len(got)-1]}.get(t, "sequence_number").(float64)
	if !strings.HasPrefix(id, "resp_") || last != 19 {
		t.Fatalf("response %q, event %v last: %s", id, last, got)
	}
	rest := events(p.do(alice, "GET", fmt.Sprintf("/responses/%s?stream=true&starting_after=%v", id, last), ""))
	whole := other.take(1000)
	other.Close()
	if got := append(got, rest...); strings.Join(got, "\n") != strings.Join(whole, "\n") {
		t.Errorf("in two parts\n%s\nin one\n%s", strings.Join(got, "\n"), strings.Join(whole, "\n"))
	}
	late := events(p.do(alice, "GET", "/responses/"+id+"?stream=true", ""))
	if len(late) != len(whole) || strings.Join(late[2:], "\n") != strings.Join(whole[2:], "\n") {
		t.Errorf("after the job\n%s\nbefore\n%s", strings.Join(late, "\n"), strings.Join(whole, "\n"))
	}
	for i, data := range whole {
		e := reply{body: data}
		if e.get(t, "sequence_number") != float64(i) {
			t.Errorf("event %d: %s", i, data)
		}
		if of := e.get(t, "response.id"); of != nil && of != id {
			t.Errorf("event %d is of %v", i, of)
		}
	}
	end := reply{body: whole[len(whole)-1]}
	if end.get(t, "type") != "response.completed" || end.get(t, "response.usage.output_tokens") != 60.0 {
		t.Errorf("%+v", end)
	}
	if r := p.poll(alice, id); r.get(t, "status") != "completed" || r.get(t, "id") != id { // just after its last event
		t.Errorf("%+v", r)
	}
}

// opened is a stream of events that is being read.
type opened struct {
	io.Closer
	lines *bufio.Scanner
	read  []string
}

// open makes a request whose answer is a stream.
func (p *process) open(key, method, path, body string) *opened {
	p.t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return &opened{Closer: resp.Body, lines: bufio.NewScanner(resp.Body)}
}

// take reads until there are n events, or the stream ends, and returns all events so far.
func (o *opened) take(n int) []string {
	for len(o.read) < n && o.lines.Scan() {
		if data, ok := strings.CutPrefix(o.lines.Text(), "data: "); ok {
			o.read = append(o.read, data)
		}
	}
	return o.read
}

// events returns the data of a stream's events.
func events(r reply) (list []string) {
	for line := range strings.SplitSeq(r.body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, data)
		}
	}
	return list
}
