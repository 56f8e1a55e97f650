package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// content adds what a file or a conversation contributes. What tools read from vector stores and containers
// is billed by the answer's usage, like that of all tools.
func (rs *resolver) content(ctx context.Context, c Caller, k *references, ref wire.Ref) (err error) {
	switch {
	case ref.Tool:
	case ref.Kind == wire.ObjectFile && ref.Picture:
		k.pictures++
	case ref.Kind == wire.ObjectFile:
		k.documents++
	case ref.Kind == wire.ObjectConversation && c.Batched:
		return wire.BadRequest(ref.Param, "unsupported_parameter", "A batch that runs at the provider cannot use a "+
			"conversation")
	case ref.Kind == wire.ObjectConversation && k.conversation == "":
		ctx, cancel := context.WithTimeout(ctx, rs.deadline+ownedMargin)
		defer cancel()
		k.conversation = ref.ID
		k.total, err = rs.ownership.Tokens(ctx, c.Org.ID, ref.ID)
	}
	return stored(err)
}

// counted returns how many tokens of a conversation a request to a model may contain: at
// most the model's context, where 0 means unknown.
func (k *references) counted(context int64) int64 {
	return min(k.total, cmp.Or(context, unknownContext))
}

// pictures returns the most that the images stored at the provider may count.
func (e *estimator) pictures() int64 {
	n := e.plan.kept.pictures * int64(tokenizer.ImageTokens(e.plan.Target.Model, 0, 0, ""))
	e.plan.imageIn += n
	return n
}

// addition is what a request in progress may add to its conversation; a zero addition is none.
type addition struct {
	ownership.Addition
	objects *Objects // nil: it has ended
	id      string   // of the request
}

// begin records what a request, or an attempt at a call, may add to a conversation, before it is sent.
func (o *Objects) begin(ctx context.Context, org, conversation, id string, tokens int64) (addition, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	a, err := o.ownership.Begin(ctx, org, conversation, id, tokens)
	return addition{a, o, id}, stored(err)
}

// end replaces an addition once: by most, the tokens that may have been added, and total, the provider's
// count of the conversation, or ownership.Unknown.
func (a *addition) end(ctx context.Context, most, total int64) {
	if a.objects == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := a.objects.ownership.End(ctx, a.Addition, most, total); err != nil {
		a.objects.log.Warn("conversation tokens not recorded, its next hold may be too high", "call", a.id, "err", err)
		return
	}
	a.objects = nil
}

// adding records what a call may add to its conversation. counted or uncounted ends it.
func (e *upstreamCall) adding() {
	c := e.call
	if c.Plan.kept.conversation == "" || c.Plan.Request.Endpoint != wire.Responses {
		return
	}
	most := c.Plan.Input + c.Plan.Output - c.Plan.kept.counted(c.Plan.Price.Context)
	id := fmt.Sprint(c.ID, ".", c.Attempt)
	a, err := c.guard.Objects.begin(e.upstream, c.Plan.Caller.Org.ID, c.Plan.kept.conversation, id, most)
	if err != nil {
		c.guard.log.Warn("conversation tokens not recorded, its next hold may be too low", "call", c.ID, "err", err)
		return
	}
	e.addition = a
}

// counted replaces the addition with what the provider has counted of the conversation.
func (e *upstreamCall) counted(u wire.Usage) {
	c, total := e.call, u.Input+u.Output
	most := e.addition.Added() - c.Plan.Output + u.Output
	e.addition.end(e.upstream, max(most, total-c.Plan.kept.total), total)
}

// uncounted ends the addition with what the call may have added, or with nothing if the
// provider did no work.
func (e *upstreamCall) uncounted() {
	tokens := e.addition.Added()
	if e.call.Result.void() {
		tokens = 0
	}
	e.addition.end(e.upstream, tokens, ownership.Unknown)
}

// pictureItem and documentItem bound the tokens of a conversation item whose size is not
// visible.
const (
	pictureItem  = 1 << 16
	documentItem = unknownContext
)

// addItems records what the items of a request add to a conversation: those it contains, and those of
// earlier responses that it names.
func (o *Objects) addItems(ctx context.Context, q *ObjectRequest, conversation string) (err error) {
	m := q.Mentions
	tokens := m.Items + m.Pictures*pictureItem + m.Documents*documentItem + outputs(q.Named, map[string]bool{})
	if tokens > 0 {
		q.addition, err = o.begin(ctx, q.Caller.Org.ID, conversation, q.ID, tokens)
	}
	return err
}

// itemsAdded ends what addItems began, by the status of the answer, or 0 and the error if there was none.
func (q *ObjectRequest) itemsAdded(ctx context.Context, status int, err error) {
	tokens := q.addition.Added()
	if idle(status) || status == 0 && NotSent(err) {
		tokens = 0
	}
	q.addition.end(ctx, tokens, ownership.Unknown)
}

// noteMade records a chat completion that was to be stored, and the containers that the provider created for
// the code in an answer, because the caller may want their files. What cannot be recorded is omitted.
func (e *upstreamCall) noteMade(a wire.Answer) {
	c := e.call
	var made []ownership.Note
	if c.Plan.Request.Endpoint == wire.ChatCompletions && c.Plan.Request.Store && a.ID != "" && !e.noted {
		e.noted = true
		made = append(made, ownership.Note{ID: a.ID, Kind: wire.ObjectCompletion, Model: c.Plan.Request.Model})
	}
	if len(made) == 0 && len(a.Containers) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.upstream), settleTimeout)
	defer cancel()
	known, err := c.guard.ownership.Find(ctx, c.Plan.Caller.Org.ID, a.Containers...)
	for _, id := range a.Containers {
		if _, ok := known[id]; !ok && err == nil {
			session := wire.ObjectContainer.Object().Session
			made = append(made, withSession(ownership.Note{ID: id, Kind: wire.ObjectContainer}, session,
				cmp.Or(c.Plan.Request.ContainerMemory, session.Sizes[0])))
		}
	}
	for _, n := range made {
		n.Provider = c.Plan.Target.Provider.ID
		err = errors.Join(err, c.guard.Objects.keep(ctx, c.Plan.Caller, n))
	}
	if err != nil {
		c.guard.log.Warn("object of an answer not recorded, it cannot be referenced", "call", c.ID, "err", err)
	}
}
