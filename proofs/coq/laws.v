(* Laws over a finite vocabulary, and sequential verification rules.

   Definitions only, and elementary facts about them. The vocabulary V is any finite type and F is any ordered
   field (mathcomp's realFieldType: the rationals, the real algebraic numbers, the reals). Division is total
   here, x / 0 = 0, as everywhere in mathcomp. No statement of this folder leans on that: where a quotient
   could have denominator 0, a hypothesis speaks of the case where it has not, and leaves the other open. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Arithmetic.
Variable F : realFieldType.
Implicit Types a b c d : F.

(* The positive part, (a)_+. *)
Definition pos a : F := Num.max a 0.

Lemma pos_ge0 a : 0 <= pos a.
Proof. by rewrite /pos le_maxr lexx orbT. Qed.

Lemma pos_def a : pos a = if 0 <= a then a else 0.
Proof. by rewrite /pos; case: (leP 0 a). Qed.

Lemma pos_eq0 a : a <= 0 -> pos a = 0.
Proof. by move=> a_le0; apply/max_idPr. Qed.

Lemma pos_id a : 0 <= a -> pos a = a.
Proof. by move=> a_ge0; apply/max_idPl. Qed.

Lemma le_pos a : a <= pos a.
Proof. by rewrite /pos le_maxr lexx. Qed.

Lemma pos_le a b : a <= b -> pos a <= pos b.
Proof. by move=> le_ab; rewrite /pos le_maxl !le_maxr le_ab lexx orbT. Qed.

(* min(a, b) = a - (a - b)_+ *)
Lemma min_pos a b : Num.min a b = a - pos (a - b).
Proof.
rewrite /pos; case: (leP a b) => [le_ab | lt_ba].
  by rewrite (max_idPr _) ?subr0 // subr_le0.
by rewrite (max_idPl _) ?subr_ge0 ?ltW //; ring.
Qed.

(* (b - a)_+ = b - min(a, b) *)
Lemma pos_min a b : pos (b - a) = b - Num.min a b.
Proof. by rewrite minC min_pos; ring. Qed.

Lemma pos_diff a b : pos (a - b) - pos (b - a) = a - b.
Proof. by rewrite pos_min [pos (b - a)]pos_min minC; set m := Num.min _ _; ring. Qed.

Lemma le_of_diff a b c : 0 <= c -> b - a = c -> a <= b.
Proof. by move=> c_ge0 def_c; rewrite -subr_ge0 def_c. Qed.

Lemma lt_of_diff a b c : 0 < c -> b - a = c -> a < b.
Proof. by move=> c_gt0 def_c; rewrite -subr_gt0 def_c. Qed.

Lemma le_div a b c : 0 < c -> (a <= b / c) = (a * c <= b).
Proof. exact: ler_pdivl_mulr. Qed.

Lemma lt_div a b c : 0 < c -> (b / c < a) = (b < a * c).
Proof. exact: ltr_pdivr_mulr. Qed.

End Arithmetic.

Section Laws.
Variables (F : realFieldType) (V : finType).
Implicit Types f g p q : V -> F.

(* |f|, the sum over the vocabulary *)
Definition mass f : F := \sum_x f x.

Definition nonneg f := forall x, 0 <= f x.
Definition is_law f := nonneg f /\ mass f = 1.

Lemma massD f g : mass (fun x => f x + g x) = mass f + mass g.
Proof. exact: big_split. Qed.

Lemma massB f g : mass (fun x => f x - g x) = mass f - mass g.
Proof. by rewrite /mass big_split /= sumrN. Qed.

Lemma massZ a f : mass (fun x => a * f x) = a * mass f.
Proof. by rewrite /mass mulr_sumr. Qed.

Lemma eq_mass f g : f =1 g -> mass f = mass g.
Proof. by move=> fg; apply: eq_bigr => x _. Qed.

Lemma mass_ge0 f : nonneg f -> 0 <= mass f.
Proof. by move=> f_ge0; apply: sumr_ge0. Qed.

Lemma le_mass f g : (forall x, f x <= g x) -> mass f <= mass g.
Proof. by move=> le_fg; apply: ler_sum => x _. Qed.

(* A non-negative function without mass is zero. *)
Lemma mass0 f : nonneg f -> mass f = 0 -> forall x, f x = 0.
Proof. by move=> f_ge0 /psumr_eq0P f0 x; apply: f0. Qed.

(* Two functions of equal mass, one below the other, are equal. *)
Lemma equal_mass f g : (forall x, f x <= g x) -> mass f = mass g -> f =1 g.
Proof.
move=> le_fg eq_fg x; apply/esym/eqP; rewrite -subr_eq0; apply/eqP.
apply: (@mass0 (fun x => g x - f x)); first by move=> y; rewrite subr_ge0.
by rewrite massB eq_fg subrr.
Qed.

End Laws.

Section Rules.
Variables (F : realFieldType) (V : finType).

(* A sequential verification rule, with everything it may remember: either draw the token from R, or look at
   one more candidate x ~ q, accept it with probability a x, and go on with (next x) if it is rejected. What
   comes next may depend on all tokens rejected before, and branches may stop early. *)
Inductive rule : Type :=
  | Draw of (V -> F)
  | Round of (V -> F) & (V -> F) & (V -> rule).

(* The operational marginal: probability that the rule emits y, summed over all candidate sequences. *)
Fixpoint marginal (t : rule) (y : V) : F :=
  match t with
  | Draw R => R y
  | Round q a next => q y * a y + \sum_x q x * (1 - a x) * marginal (next x) y
  end.

(* Probability that the emitted token is one of the candidates. *)
Fixpoint acceptance (t : rule) : F :=
  match t with
  | Draw _ => 0
  | Round q a next => \sum_x q x * a x + \sum_x q x * (1 - a x) * acceptance (next x)
  end.

End Rules.
