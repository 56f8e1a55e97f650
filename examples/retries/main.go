// Command retries makes one chat completion with retries, using only net/http.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"
)

const attempts = 8

var (
	base   = cmp.Or(os.Getenv("LLMGUARD_URL"), "http://127.0.0.1:8080/v1")
	client = &http.Client{Timeout: 5 * time.Minute}
)

// delay is what the server says plus jitter, or exponential backoff with full jitter.
func delay(attempt int, header http.Header) time.Duration {
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds >= 0 {
		return time.Duration(seconds)*time.Second + mathrand.N(time.Second)
	}
	return mathrand.N(min(30*time.Second, 500*time.Millisecond<<attempt))
}

// canRetry obeys the server's advice, and goes by the status where there is none.
func canRetry(status int, header http.Header) bool {
	switch header.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// post sends one attempt and reads its whole answer.
func post(path, key string, body []byte) (int, http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("LLMGUARD_KEY"))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, text, err
}

// call sends one call, repeating it while a retry can help.
func call(path string, body []byte) ([]byte, error) {
	key := rand.Text() // the same for all attempts of this call
	for attempt := 0; ; attempt++ {
		status, header, text, err := post(path, key, body)
		if err == nil && status < 300 {
			return text, nil
		}
		last := attempt == attempts-1
		if err == nil && (last || !canRetry(status, header)) {
			return nil, fmt.Errorf("%d: %s", status, text)
		}
		if last {
			return nil, err
		}
		var why any = status
		if err != nil {
			why = err
		}
		wait := delay(attempt, header)
		fmt.Fprintf(os.Stderr, "%v: retry in %.1f s\n", why, wait.Seconds())
		time.Sleep(wait)
	}
}

func main() {
	text, err := call("/chat/completions",
		[]byte(`{"model":"gpt-4o-mini","max_tokens":100,"messages":[{"role":"user","content":"Say hello"}]}`))
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}
