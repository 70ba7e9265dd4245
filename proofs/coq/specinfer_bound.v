(* How far SpecInfer can be below the limit of exact rules.

   Proved, for every finite V, every ordered field F, all laws p, q and every n. phi(t) = sum_x min(p(x), t q(x));
   S 0 = 1 and S k.+1 = S k + (1 - phi(S k)). SpecInfer accepts one of n.+1 candidates with probability phi(S n).
   - A sequential rule of up to n candidates from q, whatever it remembers, that emits the set H with probability at
     most p(H) accepts with probability at most 1 + p(H) - q(H)^n                        (transport_bound).
   - For H = {x | p x <= S n * q x}, c = p(H) and u = q(H): 1 - phi(S n) <= u^n (u - c)  (specinfer_below).
   - So u > 0, and a rule of up to n.+1 candidates with marginal p accepts at most
     1 + u - u^(n+1) - (1 - phi(S n)) / u^n                                              (specinfer_bound).
   Left: that SpecInfer's acceptance is phi(S n); joint rules; the largest value over u, which needs roots. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws token_free piecewise optimal_sequential.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section SpecInfer.
Variables (F : realFieldType) (V : finType) (p q : V -> F).
Hypothesis p_law : is_law p.
Hypothesis q_law : is_law q.

Fixpoint S (k : nat) : F := if k is k'.+1 then S k' + (1 - phi p q (S k')) else 1.

Section Line.
Variables c u : F.
Definition line (t : F) : F := c + (1 - u) * t.
Hypothesis above : forall t, phi p q t <= line t.

(* The same recursion with the line in the place of phi. *)
Fixpoint slower (k : nat) : F := if k is k'.+1 then slower k' + (1 - line (slower k')) else 1.

Lemma slower_left k : 1 - line (slower k) = u ^+ k * (u - c).
Proof.
elim: k => [| k IHk]; first by rewrite /line /= expr0; ring.
by rewrite exprS -mulrA -IHk /= /line; ring.
Qed.

Lemma slower_le k : slower k <= S k.
Proof.
elim: k => [| k IHk] //=.
apply: (@le_trans _ _ (slower k + (1 - phi p q (slower k)))).
  by rewrite ler_add2l ler_sub ?lexx ?above.
have step := gap_mono p q_law IHk.
by rewrite ![_ + (1 - _)]addrCA ler_add2l.
Qed.

End Line.

Definition under (s : F) : pred V := fun x => p x <= s * q x.
Definition mass_p s : F := \sum_(x | under s x) p x.
Definition mass_q s : F := \sum_(x | under s x) q x.

Lemma other_mass s : 1 - mass_q s = \sum_(x | ~~ under s x) q x.
Proof. by rewrite -q_law.2 /mass (bigID (under s)) /= /mass_q [X in X - _]addrC addrK. Qed.

Lemma line_above s t : phi p q t <= line (mass_p s) (mass_q s) t.
Proof.
rewrite /line other_mass mulr_suml /phi /mass (bigID (under s)) /=.
apply: ler_add; apply: ler_sum => x _; first by rewrite le_minl lexx.
by rewrite mulrC le_minl lexx orbT.
Qed.

Lemma line_touches s : phi p q s = line (mass_p s) (mass_q s) s.
Proof.
rewrite /line other_mass mulr_suml /phi /mass (bigID (under s)) /=.
congr (_ + _); apply: eq_bigr => x; rewrite /under => px; first by apply/min_idPl.
by rewrite mulrC; apply/min_idPr/ltW; rewrite mulrC ltNge.
Qed.

Lemma S_ge1 k : 1 <= S k.
Proof.
elim: k => [| k IHk] //=; apply: (le_trans IHk).
by rewrite ler_addl subr_ge0 phi_le1.
Qed.

Lemma mass_q_le1 s : mass_q s <= 1.
Proof.
rewrite -q_law.2 /mass (bigID (under s)) /= ler_addl.
by apply: sumr_ge0 => x _; apply: q_law.1.
Qed.

(* Not all of the draft's mass can be where p > s q with s >= 1. *)
Lemma mass_q_gt0 s : 1 <= s -> 0 < mass_q s.
Proof.
move=> s_ge1; rewrite lt_neqAle sumr_ge0 ?andbT; last by move=> x _; apply: q_law.1.
apply/eqP => /esym none.
have zero x : under s x -> q x = 0.
  by apply: (psumr_eq0P _ none) => y _; apply: q_law.1.
have below x : q x <= p x.
  case: (boolP (under s x)) => [/zero -> | ]; first exact: p_law.1.
  rewrite /under -ltNge => /ltW; apply: le_trans.
  by rewrite ler_pemull // q_law.1.
have same := equal_mass below (etrans q_law.2 (esym p_law.2)).
have all_zero x : q x = 0.
  apply: zero; rewrite /under -same ler_pemull //; exact: q_law.1.
by have := q_law.2; rewrite /mass big1 // => /eqP; rewrite eq_sym oner_eq0.
Qed.

Theorem specinfer_below n :
  1 - phi p q (S n) <= mass_q (S n) ^+ n * (mass_q (S n) - mass_p (S n)).
Proof.
rewrite -slower_left ler_sub ?lexx // line_touches /line ler_add2l.
by rewrite ler_wpmul2l ?subr_ge0 ?mass_q_le1 // slower_le //; apply: line_above.
Qed.

Theorem transport_bound (H : pred V) n t : iid q t -> rounds_le n t ->
  acceptance t <= 1 + \sum_(x | H x) marginal t x - (\sum_(x | H x) q x) ^+ n.
Proof.
set u := \sum_(x | H x) q x.
have u_ge0 : 0 <= u by apply: sumr_ge0 => x _; apply: q_law.1.
have u_le1 : u <= 1.
  by rewrite -q_law.2 /mass (bigID H) /= ler_addl; apply: sumr_ge0 => x _; apply: q_law.1.
elim: t n => [R | q' a next IH] n.
  move=> R_ge0 _ /=; rewrite -addrA addrCA addr_ge0 ?subr_ge0 ?exprn_ile1 //.
  by apply: sumr_ge0 => x _; apply: R_ge0.
case: n => [[] // | n] /= [eq_q a01 next_iid] next_le.
have w_ge0 : 0 <= 1 - u ^+ n by rewrite subr_ge0 exprn_ile1.
have next_bound x : q' x * (1 - a x) * acceptance (next x) <=
    q' x * (1 - a x) * (1 - u ^+ n) + q' x * (1 - a x) * \sum_(y | H y) marginal (next x) y.
  rewrite -mulrDr ler_wpmul2l //; last by rewrite [1 - _ + _]addrAC; apply: IH.
  by rewrite eq_q; have [_] := accept_ge0 q_law (a01 x).
have emitted : \sum_(y | H y) (q' y * a y + \sum_x q' x * (1 - a x) * marginal (next x) y) =
    \sum_(y | H y) q' y * a y + \sum_x q' x * (1 - a x) * \sum_(y | H y) marginal (next x) y.
  rewrite big_split /= exchange_big /=; congr (_ + _).
  by apply: eq_bigr => x _; rewrite mulr_sumr.
rewrite emitted.
have total := ler_sum (index_enum V) (fun x (_ : true) => next_bound x).
rewrite big_split /= in total.
rewrite -(ler_add2l (\sum_x q' x * a x)) in total; apply: (le_trans total).
rewrite [X in X + (_ + _)](bigID H) /= [X in _ + (X + _)](bigID H) /=.
have inside : \sum_(x | H x) q' x * (1 - a x) * (1 - u ^+ n) <= u * (1 - u ^+ n).
  rewrite /u mulr_suml; apply: ler_sum => x _; rewrite ler_wpmul2r // eq_q.
  have [/andP[qa_ge0 _] _] := accept_ge0 q_law (a01 x).
  by apply: (le_of_diff qa_ge0); ring.
have outside : \sum_(x | ~~ H x) q' x * a x + \sum_(x | ~~ H x) q' x * (1 - a x) * (1 - u ^+ n) <= 1 - u.
  have -> : 1 - u = \sum_(x | ~~ H x) q x.
    by rewrite -q_law.2 /mass (bigID H) /= /u [X in X - _]addrC addrK.
  rewrite -big_split /=; apply: ler_sum => x _.
  have [_ rest_ge0] := accept_ge0 q_law (a01 x).
  apply: (@le_of_diff _ _ _ (q x * (1 - a x) * u ^+ n)); last by rewrite eq_q; ring.
  by rewrite mulr_ge0 ?exprn_ge0.
move: inside outside; rewrite -subr_ge0 => inside; rewrite -subr_ge0 => outside.
apply: (le_of_diff (addr_ge0 inside outside)); rewrite exprS.
move: (\sum_(x | H x) q' x * a x) (\sum_(x | ~~ H x) q' x * a x) => A B.
move: (\sum_(x | H x) q' x * (1 - a x) * (1 - u ^+ n)) (\sum_(x | ~~ H x) q' x * (1 - a x) * (1 - u ^+ n)) => C D.
by move: (\sum_x q' x * (1 - a x) * (\sum_(y | H y) marginal (next x) y)) => E; ring.
Qed.

Theorem specinfer_bound n t : let u := mass_q (S n) in
  iid q t -> rounds_le n.+1 t -> (forall y, marginal t y = p y) ->
  0 < u /\ acceptance t <= 1 + u - u ^+ n.+1 - (1 - phi p q (S n)) / u ^+ n.
Proof.
move=> u t_iid t_le t_law; have u_gt0 : 0 < u by apply: mass_q_gt0; apply: S_ge1.
split=> //; have un_gt0 : 0 < u ^+ n by rewrite exprn_gt0.
apply: (le_trans (transport_bound (under (S n)) t_iid t_le)).
rewrite (eq_bigr _ (fun x _ => t_law x)) -/(mass_p (S n)) -/(mass_q (S n)) -/u.
have le_c : (1 - phi p q (S n)) / u ^+ n <= u - mass_p (S n).
  by rewrite ler_pdivr_mulr // mulrC specinfer_below.
by apply: (@le_of_diff _ _ _ (u - mass_p (S n) - (1 - phi p q (S n)) / u ^+ n)); rewrite ?subr_ge0 //; ring.
Qed.

End SpecInfer.
