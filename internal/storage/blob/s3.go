package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"
)

// s3Client sends signed requests to one bucket, and retries temporary failures.
type s3Client struct {
	http     *http.Client
	endpoint *url.URL // of the bucket
	region   string
	keys     *credentials.Credentials // nil: requests are not signed

	tries int           // per request
	pause time.Duration // after the first try; doubles each time
	limit time.Duration // for a try whose response is read completely
}

// Defaults of a client.
const (
	s3Tries      = 4
	s3Pause      = 100 * time.Millisecond
	s3LongestGap = 5 * time.Second
	s3Limit      = time.Minute
	s3DialTime   = 10 * time.Second
	s3HeaderTime = 30 * time.Second // until the response starts
	s3MaxAnswer  = 8 << 20          // of XML; a page of 1000 names is a tenth of it
)

// s3Request is a request that can be sent repeatedly.
type s3Request struct {
	method string
	name   string // of the object; empty: the bucket itself
	query  url.Values
	header http.Header
	body   []byte
}

// stream sends a request and returns a response whose body the caller must read and close.
func (c *s3Client) stream(ctx context.Context, r s3Request) (*http.Response, error) {
	var resp *http.Response
	err := c.retry(ctx, func() error {
		var err error
		resp, err = c.try(ctx, r) //nolint:bodyclose // the caller closes it
		return err
	})
	return resp, err
}

// send sends a request, decodes the XML of the response into answer unless that is nil, and
// returns the header of the response.
func (c *s3Client) send(ctx context.Context, r s3Request, answer any) (http.Header, error) {
	var header http.Header
	err := c.retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, c.limit)
		defer cancel()
		resp, err := c.try(ctx, r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		header = resp.Header
		return decodeAnswer(resp, answer)
	})
	return header, err
}

// retry calls try until it succeeds, fails permanently, or has failed too often.
func (c *s3Client) retry(ctx context.Context, try func() error) error {
	pause := c.pause
	for n := 1; ; n++ {
		err := try()
		if err == nil || n == c.tries || ctx.Err() != nil || !c.passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; before that: %w", context.Cause(ctx), err)
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
		pause = min(2*pause, s3LongestGap)
	}
}

// passes reports whether a request that failed with err may succeed if repeated. It makes
// expired credentials be fetched again.
func (c *s3Client) passes(err error) bool {
	if errors.Is(err, errNoCredentials) {
		return false
	}
	var refused *s3Error
	if !errors.As(err, &refused) {
		return true // a broken connection or truncated response
	}
	if refused.expired() && c.keys != nil {
		c.keys.Expire()
		return true
	}
	return refused.passes()
}

// try sends a request once. A response other than success is an *s3Error.
func (c *s3Client) try(ctx context.Context, r s3Request) (*http.Response, error) {
	req, err := c.signed(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readError(resp)
}

// signed builds and signs a request. Over TLS the signature excludes the body, to avoid hashing
// every byte.
func (c *s3Client) signed(ctx context.Context, r s3Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.endpoint.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.name != "" {
		req.URL.Path += "/" + r.name
		req.URL.RawPath = s3utils.EncodePath(req.URL.Path)
	}
	req.URL.Path = cmp.Or(req.URL.Path, "/")
	req.URL.RawQuery = r.query.Encode()
	maps.Copy(req.Header, r.header)
	digest := "UNSIGNED-PAYLOAD"
	if req.URL.Scheme == "http" {
		sum := sha256.Sum256(r.body)
		digest = hex.EncodeToString(sum[:])
	}
	req.Header.Set("X-Amz-Content-Sha256", digest)
	if c.keys == nil {
		return req, nil
	}
	v, err := c.keys.GetWithContext(&credentials.CredContext{Client: c.http, Context: ctx})
	if err != nil {
		return nil, err
	}
	return signer.SignV4(*req, v.AccessKeyID, v.SecretAccessKey, v.SessionToken, c.region), nil
}

// decodeAnswer reads the whole response, so that its connection can be reused. An error may
// come with status 200, because a completion sends the status before its outcome is known.
func decodeAnswer(resp *http.Response, answer any) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, s3MaxAnswer))
	if err != nil {
		return fmt.Errorf("the response is truncated: %w", err)
	}
	if answer == nil {
		return nil
	}
	if refused := parseError(data); refused != nil {
		refused.Status = resp.StatusCode
		return refused
	}
	if err := xml.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the response is not from S3: %w", err)
	}
	return nil
}

// s3Error is an error response. It keeps only the fields that contain no key and no signature.
type s3Error struct {
	XMLName   xml.Name `xml:"Error"`
	Status    int      `xml:"-"`
	Code      string
	Message   string
	RequestID string `xml:"RequestId"`
	Region    string
}

func (e *s3Error) Error() string {
	text := fmt.Sprintf("the bucket returned status %d", e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Region != "" {
		text += " (its region is " + e.Region + ")"
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// passes reports whether the same request may succeed later.
func (e *s3Error) passes() bool {
	switch e.Code {
	case "RequestTimeout", "InternalError", "SlowDown", "ServiceUnavailable", "OperationAborted":
		return true
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// expired reports whether the credentials belong to an expired session.
func (e *s3Error) expired() bool {
	return e.Code == "ExpiredToken" || e.Code == "TokenRefreshRequired"
}

// exists reports whether the object to be created exists already.
func (e *s3Error) exists() bool {
	return e.Status == http.StatusPreconditionFailed || e.Code == "ConditionalRequestConflict"
}

func readError(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, s3MaxAnswer)) // the status is enough
	refused := parseError(data)
	if refused == nil {
		refused = &s3Error{}
	}
	refused.Status = resp.StatusCode
	if refused.RequestID == "" {
		refused.RequestID = resp.Header.Get("X-Amz-Request-Id")
	}
	if refused.Region == "" && resp.StatusCode < http.StatusBadRequest {
		refused.Region = resp.Header.Get("X-Amz-Bucket-Region")
	}
	return refused
}

// parseError returns the error in S3's XML, or nil if it contains none.
func parseError(data []byte) *s3Error {
	var e s3Error
	if xml.Unmarshal(data, &e) != nil {
		return nil
	}
	return &e
}
