package guard

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/providers"
)

// answerPatience is how long a plain answer waits for memory. It has been paid for.
const answerPatience = 30 * time.Second

// dropBody releases the request's bytes, which are not needed once the provider answers: a
// stream may take hours.
func (c *Call) dropBody(sent func()) {
	if c.Plan.translated() { // the answer is built from the request, too
		return
	}
	c.Plan.Request.Body, c.Plan.sent.Body = nil, nil
	if sent != nil {
		sent()
	}
}

// receive reads a whole answer in the caller's form and bills it. A large answer is kept in
// a file and is in memory only while its usage is read.
func (e *upstreamCall) receive(resp *http.Response, kept *spool.Buffer) error {
	c := e.call
	if err := fill(resp, kept); err != nil {
		return err
	}
	body, err := kept.Bytes()
	if c.Plan.translated() && err == nil {
		body, err = responses.Answer(body, e.reply())
		if err == nil {
			err = kept.Replace(body)
		}
	}
	if err != nil {
		return err
	}
	e.settlePlain(body)
	return redactFailure(e.redact, kept, body)
}

// redactFailure redacts a whole answer that reports a failure, and leaves it in its file.
func redactFailure(redact providers.Redactor, kept *spool.Buffer, body []byte) error {
	clean := redact.Failure(body)
	if !bytes.Equal(clean, body) {
		return kept.Replace(clean)
	}
	kept.Unload()
	return nil
}

// fillRedacted reads a whole answer that costs nothing.
func fillRedacted(resp *http.Response, kept *spool.Buffer) error {
	if err := fill(resp, kept); err != nil {
		return err
	}
	body, err := kept.Bytes()
	if err != nil {
		return err
	}
	return redactFailure(providers.RedactorOf(resp), kept, body)
}

// fill reads a whole answer.
func fill(resp *http.Response, kept *spool.Buffer) error {
	if resp.ContentLength > maxAnswer {
		return errAnswerTooLarge
	}
	if err := kept.Expect(resp.ContentLength); err != nil {
		return err
	}
	err := kept.Fill(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && kept.Size() > maxAnswer {
		err = errAnswerTooLarge
	}
	return err
}

var errAnswerTooLarge = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
