package blob

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// S3 requires parts of at least 5 MiB. An upload sends parts of this size, this many
// concurrently, while it buffers the next one. That bounds its memory, however large the blob
// is.
const (
	partSize  = 5 << 20
	partsOpen = 2
)

// abortTime limits how long an abort waits for the bucket.
const abortTime = 5 * time.Second

// objectUpload writes an object: in one request if it fits into a part, otherwise in parts.
type objectUpload struct {
	s3     *s3Client
	ctx    context.Context
	name   string
	header http.Header // how the object is stored
	once   bool        // the object must not exist
	buffer []byte
	parts  *partUploads // nil: no part has been sent
}

func (u *objectUpload) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if len(u.buffer) == partSize {
			err := u.sendPart()
			if err != nil {
				return written, err
			}
		}
		n := min(len(p), partSize-len(u.buffer))
		u.buffer = append(u.buffer, p[:n]...)
		p = p[n:]
		written += n
	}
	return written, nil
}

// sendPart sends the buffer as the next part.
func (u *objectUpload) sendPart() error {
	if u.parts == nil {
		parts, err := beginParts(u.ctx, u.s3, u.name, u.header)
		if err != nil {
			return err
		}
		u.parts = parts
	}
	err := u.parts.send(u.buffer)
	u.buffer = nil
	return err
}

func (u *objectUpload) commit() error {
	err := u.finish()
	if err != nil {
		u.abort()
	}
	var refused *s3Error
	if u.once && errors.As(err, &refused) && refused.exists() {
		return errExists
	}
	return err
}

func (u *objectUpload) finish() error {
	if u.parts == nil {
		header := u.header.Clone()
		u.condition(header)
		_, err := u.s3.send(u.ctx, s3Request{method: http.MethodPut, name: u.name, header: header, body: u.buffer}, nil)
		return err
	}
	err := u.sendPart()
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/xml"}}
	u.condition(header)
	return u.parts.complete(header)
}

// condition makes the request fail if an object exists that must not.
func (u *objectUpload) condition(header http.Header) {
	if u.once {
		header.Set("If-None-Match", "*")
	}
}

func (u *objectUpload) abort() {
	u.buffer = nil
	if u.parts != nil {
		u.parts.abort()
		u.parts = nil
	}
}

// partUploads is the multipart upload of one object.
type partUploads struct {
	s3       *s3Client
	ctx      context.Context // of the whole upload
	name, id string
	group    *errgroup.Group
	sending  context.Context // of the parts; cancelled by the first error
	cancel   context.CancelFunc
	sent     []*part
}

// part is a part in the form that the completion request needs.
type part struct {
	PartNumber int
	ETag       string
}

func beginParts(ctx context.Context, s3 *s3Client, name string, header http.Header) (*partUploads, error) {
	var begun struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	r := s3Request{method: http.MethodPost, name: name, query: url.Values{"uploads": {""}}, header: header}
	_, err := s3.send(ctx, r, &begun)
	if err != nil {
		return nil, err
	}
	if begun.UploadID == "" {
		return nil, errors.New("the bucket returned no id for a multipart upload")
	}
	p := &partUploads{s3: s3, ctx: ctx, name: name, id: begun.UploadID}
	sending, cancel := context.WithCancel(ctx)
	p.group, p.sending = errgroup.WithContext(sending)
	p.cancel = cancel
	p.group.SetLimit(partsOpen)
	return p, nil
}

// send sends a part in the background and returns the error of any earlier part. It blocks
// while partsOpen parts are being sent.
func (p *partUploads) send(data []byte) error {
	next := &part{PartNumber: len(p.sent) + 1}
	p.sent = append(p.sent, next)
	p.group.Go(func() error {
		etag, err := p.put(next.PartNumber, data)
		next.ETag = etag
		return err
	})
	return context.Cause(p.sending)
}

func (p *partUploads) put(number int, data []byte) (string, error) {
	query := url.Values{"uploadId": {p.id}, "partNumber": {strconv.Itoa(number)}}
	header, err := p.s3.send(p.sending, s3Request{method: http.MethodPut, name: p.name, query: query, body: data}, nil)
	if err != nil {
		return "", fmt.Errorf("part %d: %w", number, err)
	}
	return header.Get("ETag"), nil
}

// complete assembles the object from its parts.
func (p *partUploads) complete(header http.Header) error {
	err := p.group.Wait()
	p.cancel()
	if err != nil {
		return err
	}
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []*part
	}{Part: p.sent})
	if err != nil {
		return err
	}
	var done struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	}
	query := url.Values{"uploadId": {p.id}}
	r := s3Request{method: http.MethodPost, name: p.name, query: query, header: header, body: body}
	_, err = p.s3.send(p.ctx, r, &done)
	return err
}

// abort makes the bucket discard the parts, even if ctx is done. If that fails, a lifecycle
// rule of the bucket can remove them.
func (p *partUploads) abort() {
	p.cancel()
	_ = p.group.Wait() // its error is the reason for the abort
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), abortTime)
	defer cancel()
	r := s3Request{method: http.MethodDelete, name: p.name, query: url.Values{"uploadId": {p.id}}}
	_, _ = p.s3.send(ctx, r, nil)
}
