package guard

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/translate"
	"github.com/llmguard/llmguard/wire"
)

// answerPatience is how long a plain answer waits for room. It has been paid for.
const answerPatience = 30 * time.Second

// dropBody lets go of the request's bytes, which nothing needs once the provider answers:
// a stream may take hours.
func (c *Call) dropBody(sent func()) {
	if c.translated() { // what comes back is made of the request, too
		return
	}
	c.Request.Body, c.sent.Body = nil, nil
	if sent != nil {
		sent()
	}
}

// receive reads a whole answer in the caller's form, and bills it. A large one is in a
// file meanwhile and afterwards, and in memory only while it is read for its usage. One
// that finds no memory for that is charged by its hold.
func (e *errand) receive(resp *http.Response, kept *spool.Buffer) error {
	c := e.call
	if err := fill(resp, kept); err != nil {
		return err
	}
	body, err := kept.Bytes()
	if c.translated() && err == nil {
		if body, err = translate.Answer(body, e.reply()); err == nil {
			err = kept.Replace(body)
		}
	}
	switch {
	case spool.NoRoom(err) && !c.translated():
		c.chargeHold(NoUsage)
		return nil
	case err != nil:
		return err
	}
	e.settlePlain(body)
	return redactFailure(resp, kept, body)
}

// redactFailure redacts a whole answer that says that something failed, and leaves it in
// its file.
func redactFailure(resp *http.Response, kept *spool.Buffer, body []byte) error {
	clean := providers.RedactorOf(resp).Failure(body)
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
	return redactFailure(resp, kept, body)
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

// passThrough hands on an answer for which there is no room: what was read of it, and the
// rest as it comes. What it cost is at its end, which nobody has seen by then, so the
// hold is charged.
func (e *errand) passThrough(w http.ResponseWriter, resp *http.Response, kept *spool.Buffer) error {
	c := e.call
	c.chargeHold(NoUsage)
	c.head(w, resp)
	w.WriteHeader(resp.StatusCode)
	if _, err := kept.WriteTo(w); err != nil {
		return written(0, err)
	}
	kept.Close()
	s := sound{out: w, flush: http.NewResponseController(w).Flush, lost: e.hangUp}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	_, err := io.CopyBuffer(&s, struct{ io.Reader }{resp.Body}, *buf)
	if s.gone || e.gone() {
		return ErrGone
	}
	if err != nil {
		return wire.BadGateway("The provider's answer broke off", err)
	}
	return nil
}
