#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/config/internal/key_forms.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {

/// Context of reading values. Keys of a job may depend on its workload, which is read first.
struct Reading {
  const Job* job = nullptr;
  const Library* library = nullptr;
};

/// Context of writing values. `every`: also keys that have their usual values and are left out
/// else.
struct Writing {
  const Job* job = nullptr;
  bool every = false;
};

/// One row of the table of keys of a struct S: its facts, and how the struct gets and gives the
/// value. A key without `read` is only known: other code reads it, because it depends on others.
template <class S>
struct Key {
  KeyFacts facts;
  std::function<void(const Value& v, S& into, const Reading& reading)> read;
  /// Null: nothing to say.
  std::function<OrderedJson(const S& of, const Writing& writing)> write;
  bool terse = false;           ///< written only where it is not the usual value
  bool in_scope_only = false;   ///< not written of jobs to which it does not apply
  std::string_view after = {};  ///< the key it is written after; empty: in the order of the table
  /// Said of jobs to which the key does not apply where it is given, or where it is not the usual
  /// value; "{}" is what was found. Empty: nothing, `read` looks to it.
  std::string_view not_given = {}, not_changed = {};

  Key usual(OrderedJson value) && {
    facts.usual = std::move(value);
    return std::move(*this);
  }
  Key terse_usual(OrderedJson value) && {
    facts.usual = std::move(value);
    terse = true;
    return std::move(*this);
  }
  Key otherwise(std::string_view text) && {
    facts.otherwise = text;
    return std::move(*this);
  }
  Key needed(std::string_view expected) && {
    facts.needed = expected;
    return std::move(*this);
  }
  Key of(const Scope& scope) && {
    facts.scope = &scope;
    return std::move(*this);
  }
  Key only(const Scope& scope, std::string_view else_not_given) && {
    facts.scope = &scope;
    not_given = else_not_given;
    return std::move(*this);
  }
  Key changed_only(const Scope& scope, std::string_view else_not_changed) && {
    facts.scope = &scope;
    not_changed = else_not_changed;
    return std::move(*this);
  }
  Key in_scope() && {
    in_scope_only = true;
    return std::move(*this);
  }
  Key searched() && {
    facts.searched = true;
    return std::move(*this);
  }
  Key written_after(std::string_view key) && {
    after = key;
    return std::move(*this);
  }
};

template <class S>
using Keys = std::vector<Key<S>>;

template <class S>
KeyTable facts_of(const Keys<S>& keys) {
  KeyTable table;
  for (const Key<S>& key : keys) {
    table.push_back(key.facts);
  }
  return table;
}

// Keys by what they hold.

template <class S, class M>
Key<S> integer_key(std::string_view name, M S::*member, std::int64_t low, std::int64_t high,
                   std::string_view help) {
  Key<S> key;
  key.facts = {.name = name, .form = integer_form(low, high), .help = help};
  key.read = [=](const Value& v, S& into, const Reading&) {
    into.*member = static_cast<M>(v.integer(low, high));
  };
  key.write = [=](const S& of, const Writing&) { return OrderedJson(of.*member); };
  return key;
}
template <class S, class M>
Key<S> number_key(std::string_view name, M S::*member, double low, double high,
                  std::string_view help) {
  Key<S> key;
  key.facts = {.name = name, .form = number_form(low, high), .help = help};
  key.read = [=](const Value& v, S& into, const Reading&) { into.*member = v.number(low, high); };
  key.write = [=](const S& of, const Writing&) { return plain(of.*member); };
  return key;
}
template <class S>
Key<S> boolean_key(std::string_view name, bool S::*member, std::string_view help) {
  Key<S> key;
  key.facts = {.name = name, .form = boolean_form(), .help = help};
  key.read = [=](const Value& v, S& into, const Reading&) { into.*member = v.boolean(); };
  key.write = [=](const S& of, const Writing&) { return OrderedJson(of.*member); };
  return key;
}
template <class S, class E>
Key<S> choice_key(std::string_view name, E S::*member, std::vector<std::pair<std::string, E>> names,
                  std::string_view help) {
  Key<S> key;
  key.facts = {.name = name, .form = choice_form(names), .help = help};
  key.read = [=](const Value& v, S& into, const Reading&) { into.*member = v.choice(names); };
  key.write = [=](const S& of, const Writing&) { return OrderedJson(name_in(names, of.*member)); };
  return key;
}
/// An amount with its unit; `zero`: 0 is one.
template <class S, class Q>
Key<S> amount_key(std::string_view name, Q S::*member, std::string_view help, bool zero = false) {
  Key<S> key;
  key.facts = {.name = name, .form = amount_form(example_of<Q>()), .help = help};
  key.read = [=](const Value& v, S& into, const Reading&) { into.*member = v.amount<Q>(zero); };
  key.write = [=](const S& of, const Writing&) { return OrderedJson(quantity_text(of.*member)); };
  return key;
}
/// A name in quotes.
template <class S>
Key<S> name_key(std::string_view name, std::string S::*member, std::string_view help) {
  Key<S> key;
  key.facts = {.name = name, .form = text_form("a name"), .help = help};
  key.read = [=](const Value& v, S& into, const Reading&) { into.*member = v.name(); };
  key.write = [=](const S& of, const Writing&) { return OrderedJson(of.*member); };
  return key;
}
/// Read and written by other code; `write` may be given.
template <class S>
Key<S> known_key(std::string_view name, OrderedJson form, std::string_view help,
                 std::function<OrderedJson(const S&, const Writing&)> write = {}) {
  Key<S> key;
  key.facts = {.name = name, .form = std::move(form), .help = help};
  key.write = std::move(write);
  return key;
}
template <class S>
Key<S> custom_key(std::string_view name, OrderedJson form, std::string_view help,
                  std::function<void(const Value&, S&, const Reading&)> read,
                  std::function<OrderedJson(const S&, const Writing&)> write) {
  Key<S> key = known_key<S>(name, std::move(form), help, std::move(write));
  key.read = std::move(read);
  return key;
}

/// Reads the values of an object that are given. Errors: InputError for one that is missing and one
/// that does not apply to the job.
template <class S>
void read_values(const Value& v, const Keys<S>& keys, S& into, const Reading& reading) {
  for (const Key<S>& key : keys) {
    const auto given = key.facts.needed.empty()
                           ? v.find(key.facts.name)
                           : std::optional(v.at(key.facts.name, key.facts.needed));
    if (!given || !key.read) {
      continue;
    }
    const bool applies = key.facts.scope == nullptr || reading.job == nullptr ||
                         key.facts.scope->holds(*reading.job);
    if (!applies && !key.not_given.empty()) {
      given->reject(fmt::format(fmt::runtime(key.not_given), shown(given->json())));
    }
    key.read(*given, into, reading);
    if (!applies && !key.not_changed.empty()) {
      if (const OrderedJson found = key.write(into, {reading.job}); found != key.facts.usual) {
        given->reject(fmt::format(fmt::runtime(key.not_changed), found.dump()));
      }
    }
  }
}

/// Overload that reads all keys. Errors: also InputError for a key that is not in the table.
template <class S>
void read_keys(const Value& v, const Keys<S>& keys, S& into, const Reading& reading) {
  std::vector<std::string_view> names;
  for (const Key<S>& key : keys) {
    names.push_back(key.facts.name);
  }
  v.keys(names);
  read_values(v, keys, into, reading);
}

template <class S>
auto find_key(const std::vector<const Key<S>*>& keys, std::string_view name) {
  return std::find_if(keys.begin(), keys.end(),
                      [name](const Key<S>* key) { return key->facts.name == name; });
}

/// The object.
template <class S>
OrderedJson write_keys(const Keys<S>& keys, const S& of, const Writing& writing) {
  std::vector<const Key<S>*> order;
  std::vector<const Key<S>*> moved;
  for (const Key<S>& key : keys) {
    (key.after.empty() ? order : moved).push_back(&key);
  }
  while (!moved.empty()) {
    const auto ready = std::find_if(moved.begin(), moved.end(), [&](const Key<S>* key) {
      return find_key(order, key->after) != order.end();
    });
    STEPCAST_CHECK(ready != moved.end(), "no key is called '{}'", moved.front()->after);
    order.insert(find_key(order, (*ready)->after) + 1, *ready);
    moved.erase(ready);
  }
  OrderedJson object = OrderedJson::object();
  for (const Key<S>* key : order) {
    const bool applies = !key->in_scope_only || key->facts.scope->holds(*writing.job);
    if (!key->write || !applies) {
      continue;
    }
    OrderedJson value = key->write(of, writing);
    if (!value.is_null() && (writing.every || !key->terse || value != key->facts.usual)) {
      object[std::string(key->facts.name)] = std::move(value);
    }
  }
  return object;
}

}  // namespace stepcast::config
