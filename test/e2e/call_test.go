package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answer is the response to a raw HTTP call.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // from reading the body
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}, Timeout: 5 * time.Minute}

// post sends a body unchanged.
func post(url, key, body string, header ...string) answer {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return do(req)
}

func get(url, key string) answer {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	return do(req)
}

// fetch is get, retried while the response is that Redis did not answer.
func fetch(url, key string) answer {
	a := get(url, key)
	for range 600 {
		if a.err == nil && a.status != http.StatusServiceUnavailable {
			break
		}
		time.Sleep(100 * time.Millisecond)
		a = get(url, key)
	}
	return a
}

func do(req *http.Request) answer {
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// chat returns the body of a chat request.
func chat(model, text string, extra string) string {
	quoted, _ := json.Marshal(text)
	if extra != "" {
		extra = "," + extra
	}
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, model, quoted, extra)
}

// errorOf decodes an error body and fails the test unless it has OpenAI's form (docs/errors.md,
// Error bodies).
func errorOf(t *testing.T, a answer) (kind, code, message string) {
	t.Helper()
	var e struct {
		Error *struct {
			Message *string `json:"message"`
			Type    *string `json:"type"`
			Param   *string `json:"param"`
			Code    *string `json:"code"`
		} `json:"error"`
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(a.body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil || e.Error == nil || e.Error.Message == nil || e.Error.Type == nil {
		t.Fatalf("status %d: not an OpenAI error body (%v): %s", a.status, err, a.body)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("error with content type %q", ct)
	}
	if e.Error.Code != nil {
		code = *e.Error.Code
	}
	return *e.Error.Type, code, *e.Error.Message
}
